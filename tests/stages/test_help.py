"""`python -m stages` answers --help, and runs nothing when it is asked something else."""

from __future__ import annotations

import sys

import pytest

from stages.__main__ import main
from tests.conftest import ROOT, in_workspace
from tests.messages import expect

STAGES = {path.stem for path in (ROOT / "stages").glob("*.py")} - {"__init__", "__main__", "frame", "lines"}


def answered(*arguments: str) -> int:
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
        patch.setattr(sys, "argv", ["stages", *arguments])
        main()
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_help_names_every_stage(capsys: pytest.CaptureFixture[str]) -> None:
    assert answered("--help") == 0
    expect(capsys.readouterr().out, None, *STAGES)


@pytest.mark.parametrize("arguments", [["fp16", "--no-such-flag"], ["fp16", "a.onnx"], ["fp17"], ["frame"]])
def test_what_is_no_stage_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert answered(*arguments) == 2
    expect(capsys.readouterr().err, None, arguments[-1])


def test_a_stage_is_a_command() -> None:
    done = in_workspace(ROOT, "python", "-m", "stages", "fp16", "a.onnx")
    assert done.returncode == 2 and "a.onnx" in done.stderr
