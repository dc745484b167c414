"""Work beside other work, on machines of several processors.

The nodes of a small model leave processors idle, one after the other. Two runs at once, each with half of the threads,
take a fifth less processor time than one after the other with all of them.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")
_MOST = 2  # runs at once: verify.memory_gb holds the activations of two (truehalf.verification.activation_memory)


def lanes_of(runs: int) -> int:
    """How many of so many runs go beside each other."""
    return max(1, min(_MOST, runs, _processors()))


def threads_of(lanes: int) -> int:
    """Threads of a run beside others; 0, all that ONNX Runtime takes by itself, for one that is alone."""
    return _processors() // lanes if lanes > 1 else 0


def in_lanes(items: Iterable[T], work: Callable[[T], R], lanes: int) -> Iterator[R]:
    """What `work` makes of each item, in their order; an item is taken when it is needed, by the caller's thread."""
    if lanes == 1:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(lanes) as pool:
        waiting: deque[Future[R]] = deque()
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > lanes:
                yield waiting.popleft().result()
        for future in waiting:
            yield future.result()


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
