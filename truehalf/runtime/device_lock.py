"""Measurements that take turns: while one process builds or times on a device of this host, no other of ours does.

Jobs of a sweep may share a GPU; a latency, or a tactic that TensorRT chooses by timing, would be of both together. The
lock is a file of the host's, for all workspaces and users, in /tmp itself: TMPDIR differs by job on many clusters.
Containers that do not share /tmp do not see each other's: there the launcher has to give each job a separate GPU.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from truehalf.codes import coded
from truehalf.runtime.cuda_driver import gpu_uuid

CPU = "cpu"
FOLDER = Path("/tmp")


@contextlib.contextmanager
def device_lock(device: str) -> Iterator[None]:
    """Hold a device's lock; wait, and say so, while another process has it.

    Args:
        device: CPU, or anything else for CUDA's first GPU, which is known by its UUID.
    """
    name = CPU if device == CPU else gpu_uuid() or "gpu"
    lock = _opened(FOLDER / f"truehalf-{name}.lock")
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = f"another job measures on {name}; waiting for it to end"
            print(coded("waits-for-another", message), file=sys.stderr, flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)  # and with it the lock, as when the process is killed


def _opened(path: Path) -> int:
    """A descriptor of the file, which may be another user's: to lock it, reading is enough.

    It is never opened to be made: of another user's file in such a folder Linux may refuse just that. It appears under
    its name with its rights, whatever its maker's umask.
    """
    if not path.exists():
        made, name = tempfile.mkstemp(prefix=f"{path.name}.", dir=path.parent)
        os.fchmod(made, 0o644)
        os.close(made)
        try:
            with contextlib.suppress(FileExistsError):
                os.link(name, path)
        finally:
            Path(name).unlink()
    return os.open(path, os.O_RDONLY)
