"""Each code that the product uses is in the table, each in the table is used, and docs show the table."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from truehalf.codes import CODES, coded, codes_in, table
from truehalf.errors import StageError

# Calls whose first argument is a code.
CODED = {"coded", "failing", "refuse", "StageError", "BuildError"}


def used() -> Iterator[tuple[str, str]]:
    """The codes that are literals in calls, each with its place."""
    for room in ("pipeline", "stages", "truehalf"):
        for path in sorted((ROOT / room).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CODED:
                    for literal in ast.walk(node.args[0]):
                        if isinstance(literal, ast.Constant) and isinstance(literal.value, str):
                            yield literal.value, f"{path.relative_to(ROOT)}:{node.lineno}"


def test_the_table_holds_the_codes_that_are_used_and_no_other() -> None:
    places = dict(used())
    assert {code: place for code, place in places.items() if code not in CODES} == {}
    assert set(CODES) - set(places) == set()


def test_the_page_is_the_table() -> None:
    page = "docs/reference/error-codes.md"
    assert (ROOT / page).read_text() == table(), f"run python -m truehalf.codes > {page}"


@pytest.mark.parametrize("text", ["a: no such file", "two:\n  - one\n  - two"])
def test_a_message_has_its_code_at_the_end_of_its_first_line_once(text: str) -> None:
    once = coded("file-missing", text)
    assert once.splitlines()[0].endswith(" [file-missing]") and codes_in(once) == ["file-missing"]
    assert coded("wrong-type", f"m.onnx: {once}") == f"m.onnx: {once}"


def test_an_error_keeps_its_code(tmp_path: Path) -> None:
    error = StageError("file-missing", f"{tmp_path}: no such folder")
    assert error.code == "file-missing" and str(error) == f"{tmp_path}: no such folder [file-missing]"
