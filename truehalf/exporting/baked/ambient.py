"""Clocks, entropy and files that the user's code reads while a module runs: a trace keeps what they gave once.

Each call that Python makes is seen by sys.setprofile, by whatever name the code has the function. What a package reads
for itself counts as little as what logging does; a generator that is made without a seed reads entropy.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import random
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from truehalf.source_files import is_own, is_standard

CLOCK, ENTROPY, FILE = "a clock is read", "entropy is read", "a file is read"
_OF_TIME = ("time", "monotonic", "perf_counter", "process_time", "thread_time", "clock_gettime")
_READS: dict[Any, str] = {
    **{getattr(time, name + unit): CLOCK for name in _OF_TIME for unit in ("", "_ns") if hasattr(time, name + unit)},
    **dict.fromkeys((time.localtime, time.gmtime, time.ctime, time.asctime, time.strftime, os.times), CLOCK),
    **dict.fromkeys((os.urandom, getattr(os, "getrandom", os.urandom)), ENTROPY),
    **dict.fromkeys((open, os.stat), FILE),
}
_METHODS = {"now", "utcnow", "today", "seed", "generate_time_safe"}
_SEEDED = random.Random.seed.__code__


@dataclass(frozen=True)
class Ambient:
    """What the user's code reads, by file and line; and which of its functions ran."""

    reads: dict[tuple[str, int], str] = field(default_factory=dict)
    ran: set[types.CodeType] = field(default_factory=set)


@contextlib.contextmanager
def watched(found: Ambient) -> Iterator[None]:
    """What the user's code does within is added."""

    def called(frame: Any, event: str, function: Any) -> None:
        if event not in ("call", "c_call"):
            return
        if event == "c_call":
            source = _READS.get(function) or (_by_owner(function) if function.__name__ in _METHODS else None)
        else:
            source = ENTROPY if frame.f_code is _SEEDED and frame.f_locals.get("a") is None else None
            found.ran.add(frame.f_code)
        if source is None:
            return
        through = _THROUGH.get(source)
        while through is not None and frame.f_back is not None and through(frame.f_code.co_filename):
            frame = frame.f_back
        if is_own(frame.f_code.co_filename):
            found.reads[frame.f_code.co_filename, frame.f_lineno] = source

    before = sys.getprofile(), threading.getprofile()
    sys.setprofile(called)
    threading.setprofile(called)
    try:
        yield
    finally:
        sys.setprofile(before[0])
        threading.setprofile(before[1])
    found.ran.difference_update([code for code in found.ran if not is_own(code.co_filename)])


def _by_owner(function: Any) -> str | None:
    """Of methods: datetime.now, torch.Generator.seed, and the function that uuid1 calls."""
    import torch

    owner = function.__self__
    if isinstance(owner, type):
        return CLOCK if issubclass(owner, datetime.date) else None
    return ENTROPY if function.__name__ == "generate_time_safe" or isinstance(owner, torch.Generator) else None


def _is_pathlib(file: str) -> bool:
    return is_standard(file) and "pathlib" in file


_THROUGH: dict[str, Callable[[str], bool]] = {ENTROPY: is_standard, FILE: _is_pathlib}  # who reads for the code above
