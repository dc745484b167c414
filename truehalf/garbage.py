"""How often Python looks for garbage: while a graph is built it finds none, and takes up to a sixth of the time."""

from __future__ import annotations

import atexit
import contextlib
import gc
from collections.abc import Iterator

_OBJECTS = 100_000  # made since the last look, before Python looks again; by default 700 to 2,000


def collect_less() -> None:
    """For a process of truehalf's own: what was imported lives as long as it does, and so do most nodes of a graph.

    Nor is there a last look as the process ends, whose memory goes with it.
    """
    gc.freeze()
    gc.set_threshold(_OBJECTS, 50, 50)
    atexit.register(gc.freeze)


@contextlib.contextmanager
def collecting_less() -> Iterator[None]:
    """For a function in the process of somebody else (as a decorator, too): as it was before, once it has returned.

    Where Python looks less often anyway, or never, nothing is changed.
    """
    before = gc.get_threshold()
    if 0 < before[0] < _OBJECTS:
        gc.set_threshold(_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
