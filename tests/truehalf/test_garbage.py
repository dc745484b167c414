"""How often Python looks for garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from truehalf.garbage import collecting_less


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


@pytest.mark.parametrize(("before", "inside"), [(700, 100_000), (200_000, 200_000), (0, 0)])
def test_a_function_leaves_the_process_as_it_was(before: int, inside: int) -> None:
    gc.set_threshold(before, 11, 12)
    with pytest.raises(ValueError), collecting_less():
        assert gc.get_threshold()[0] == inside
        raise ValueError
    assert gc.get_threshold()[:2] == (before, 11)
