"""Measurements that take turns: while one process builds or times on a device of this host, no other of ours does.

Jobs of a sweep may share a GPU; a latency, or a tactic that TensorRT chooses by timing, would be of both together. The
lock is a file of the host's, for all workspaces and users. Containers that do not share /tmp do not see each other's:
there the launcher has to give each job a GPU of its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from stages.cuda_driver import gpu_uuid

CPU = "cpu"


@contextlib.contextmanager
def alone_on(device: str) -> Iterator[None]:
    """Hold a device's lock; wait, and say so, while another process has it.

    Args:
        device: CPU, or anything else for CUDA's first GPU, which is known by its UUID.
    """
    name = CPU if device == CPU else gpu_uuid() or "gpu"
    lock = _opened(Path(tempfile.gettempdir()) / f"truehalf-{name}.lock")
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"another job measures on {name}; waiting for it to end", file=sys.stderr, flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)  # and with it the lock, as when the process is killed


def _opened(path: Path) -> int:
    """A descriptor of the file, which may be another user's: to lock it, reading is enough."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
    return os.open(path, os.O_RDONLY)
