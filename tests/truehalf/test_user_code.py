"""Functions that are named: imported and called with the workspace on the path; what fails is said with the line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.messages import raises
from truehalf.user_code import described, imported

KEY = "precision.custom_rule"


@pytest.mark.parametrize(
    ("source", "facts"),
    [
        (None, ["ModuleNotFoundError", "'named_0'"]),
        ("x = 1\nraise KeyError('path')", ["KeyError: 'path' (", "/named_1.py, line 2)"]),
        ("import absent_of_mine", ["ModuleNotFoundError", "'absent_of_mine'", "/named_2.py, line 1)"]),
        ("def make(:", ["SyntaxError", "named_3.py, line 1)"]),
        ("raise RuntimeError('one\\ntwo')", ["RuntimeError: one two (", "/named_4.py, line 1)"]),
        ("x = 1", ["'named_5'", "'make'"]),
        ("make = 3", ["int"]),
        ("import sys\nsys.exit('a script')", ["SystemExit: a script (", "/named_7.py, line 2)"]),
    ],
)
def test_what_cannot_be_imported(
    source: str | None, facts: list[object], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    number = request.node.callspec.indices["source"]
    if source is not None:
        (tmp_path / f"named_{number}.py").write_text(source + "\n")
    before = list(sys.path)
    with raises("function-fails", *facts) as caught:
        imported(KEY, f"named_{number}:make", tmp_path)
    assert str(caught.value).startswith(f"{KEY}: 'named_{number}:make': ")
    assert sys.path == before


def test_the_workspace_is_on_the_path_when_it_is_imported_and_when_it_is_called(tmp_path: Path) -> None:
    (tmp_path / "beside_early.py").write_text("VALUE = 1\n")
    (tmp_path / "beside_late.py").write_text("VALUE = 2\n")
    (tmp_path / "named_late.py").write_text(
        "import beside_early\n\ndef make(more):\n    import beside_late\n    return beside_late.VALUE + more\n"
    )
    before = list(sys.path)
    make = imported(KEY, "named_late:make", tmp_path)
    assert sys.path == before
    assert make(more=1) == 3 and sys.path == before


def test_code_that_edits_the_path_is_let_do_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    take_off = f"sys.path.remove({str(tmp_path)!r})"
    (tmp_path / "named_editor.py").write_text(f"import sys\n{take_off}\ndef make():\n    {take_off}\n    return 3\n")
    before = list(sys.path)
    assert imported(KEY, "named_editor:make", tmp_path)() == 3
    assert sys.path == before


@pytest.mark.parametrize("how", ["sys.exit('no weights')", "sys.exit(3)", "sys.exit(0)", "raise SystemExit"])
def test_a_function_that_ends_the_process_raises_an_error_with_its_line(how: str, tmp_path: Path) -> None:
    name = f"named_ends_{len(how)}"
    (tmp_path / f"{name}.py").write_text(f"import sys\n\ndef make():\n    {how}\n")
    with pytest.raises(RuntimeError) as caught:
        imported(KEY, f"{name}:make", tmp_path)()
    said = described(caught.value)
    assert "sys.exit(" in said and said.endswith(f"{name}.py, line 4)")
