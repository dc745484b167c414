"""What tests ask of messages: their code and the facts in them, never the sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from truehalf.codes import codes_in
from truehalf.errors import StageError


def expect(text: str, code: str | None, *facts: object) -> None:
    """A message has a code (None: any) and names each fact: a key, a name, a number, as a word of its own."""
    if code is not None:
        assert code in codes_in(text), f"expected the code {code} in {text!r}"
    for fact in facts:
        word = rf"(?<![\w.]){re.escape(str(fact))}(?!\w)" if re.match(r"\w", str(fact)) else re.escape(str(fact))
        assert re.search(word, text), f"expected {fact!r} in {text!r}"


@contextmanager
def raises(
    code: str | None, *facts: object, error: type[Exception] = StageError
) -> Iterator[pytest.ExceptionInfo[Exception]]:
    """`pytest.raises` for an error with a code and facts in its message."""
    with pytest.raises(error) as caught:
        yield caught
    expect(str(caught.value), code, *facts)
