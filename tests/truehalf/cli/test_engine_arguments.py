"""The engine's command line."""

import pytest

from truehalf.cli.engine_arguments import arguments


def test_what_is_not_given_is_not_there() -> None:
    assert arguments(["--plan", "plan.json"]) == {"plan": "plan.json"}
    assert arguments(["--plan", "plan.json", "--out", "x"]) == {"plan": "plan.json", "out": "x"}


@pytest.mark.parametrize("argv", [["--out", "x"], ["plan.json"], ["--plan", "a", "--verbose"]])
def test_anything_else_is_refused(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        arguments(argv)
    assert ended.value.code == 2 and "--plan plan.json" in capsys.readouterr().err
