"""Waiting for what other processes do: for an event, never for a time that a loaded machine might need more of."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

HANG_S = 900.0  # only what hangs reaches it
_T = TypeVar("_T")


def until(happens: Callable[[], _T], what: str, alive: Callable[[], object] = lambda: True) -> _T:
    """Ask again and again until the answer is true, and return it.

    Args:
        what: is waited for, for the message.
        alive: whether it can still happen, such as that a server's process has not ended.
    """
    give_up = time.monotonic() + HANG_S
    while not (answer := happens()):
        assert alive(), f"{what}: what it depends on has ended"
        assert time.monotonic() < give_up, f"{what}: not in {HANG_S:g} s"
        time.sleep(0.02)
    return answer
