"""Work beside other work, on machines of several processors.

The nodes of a small model leave processors idle, one after the other. Two runs at once, each with half of the threads,
take a fifth less processor time than one after the other with all of them.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")
_MOST = 2  # runs at once: verify.memory_gb holds the activations of two (truehalf.verification.activation_memory)
_CGROUP = Path("/sys/fs/cgroup")
_QUOTAS = (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"))  # files of version 2 and 1 of cgroups


def lanes_of(runs: int) -> int:
    """Choose how many of so many runs go beside each other."""
    return max(1, min(_MOST, runs, _processors()))


def threads_of(lanes: int) -> int:
    """Threads of a run: half of them beside another; alone and without a quota 0, as many as ONNX Runtime chooses."""
    return 0 if lanes == 1 and _quota() is None else _processors() // lanes


def in_lanes(items: Iterable[T], work: Callable[[T], R], lanes: int) -> Iterator[R]:
    """Map items through `work`, in their order; an item is taken when it is needed, by the caller's thread."""
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
    """Processors that this process may use: those of its affinity, and no more than the quota of its container."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota()
    return allowed if quota is None else max(1, min(allowed, math.ceil(quota)))


def _quota() -> float | None:
    """Processor seconds per second that Linux's control group gives this process; None: no limit."""
    for files in _QUOTAS:
        with contextlib.suppress(OSError, ValueError):
            limit, period = " ".join((_CGROUP / file).read_text() for file in files).split()
            return None if limit in ("max", "-1") else int(limit) / int(period)
    return None
