"""What tests of models ask of refusals beyond tests.messages: the key that is at fault, and facts in their order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.messages import expect
from truehalf.codes import codes_in
from truehalf.config.typed import ConfigErrors


def in_order(text: str, *facts: object) -> None:
    """A text names the facts one after another: what was expected before what there is, each beside its place."""
    at = 0
    for fact in facts:
        word = rf"(?<![\w.]){re.escape(str(fact))}(?!\w)" if re.match(r"\w", str(fact)) else re.escape(str(fact))
        found = re.compile(word).search(text, at)
        assert found is not None, f"expected {fact!r} in {text[at:]!r}, of {text!r}"
        at = found.end()


@contextmanager
def refuses(key: str, code: str, *facts: object) -> Iterator[None]:
    """A configuration is refused: an error of the key has the code and names each fact."""
    with pytest.raises(ConfigErrors) as caught:
        yield
    errors = [error for error in caught.value.errors if error.split(":")[0] == key and code in codes_in(error)]
    assert errors, f"expected {code} of {key} among {caught.value.errors}"
    expect(errors[0], code, *facts)
