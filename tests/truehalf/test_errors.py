"""Errors that say more of another one."""

from __future__ import annotations

import pytest

from truehalf.codes import codes_in
from truehalf.errors import StageError


@pytest.mark.parametrize("text", ["m.onnx", "two:\n  - one\n  - two"])
def test_an_error_that_says_more_of_another_ends_with_its_code(text: str) -> None:
    error = StageError("no-match", text)
    assert error.text == text
    more = StageError(error.code, f"stage: {error.text}; and what to do")
    assert codes_in(str(more)) == ["no-match"] and more.code == "no-match"
    again = StageError("wrong-type", f"stage: {error}")
    assert codes_in(str(again)) == ["no-match"] and again.text == f"stage: {text}"
