"""Locks that a killed DVC has left.

DVC notes in .dvc/tmp/rwlock which process reads and writes what, and passes over processes that have ended. One that
was killed and whose parent has not waited for it yet (a zombie: the rule in containers without an init) still has its
number, so DVC takes it for alive and refuses to run.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from truehalf.files import write_text


def release(folder: Path) -> None:
    """Drop the entries of processes that do not run any more from .dvc/tmp/rwlock.

    Call it with the workspace's lock held.
    """
    path = folder / ".dvc" / "tmp" / "rwlock"
    with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
        locks = json.loads(path.read_text())
        writers = {name: info for name, info in locks.get("write", {}).items() if not info or _runs(info["pid"])}
        readers = {name: [i for i in infos if _runs(i["pid"])] for name, infos in locks.get("read", {}).items()}
        kept = {"write": writers, "read": {name: infos for name, infos in readers.items() if infos}}
        if kept != locks:
            write_text(path, json.dumps(kept))


def _runs(pid: int) -> bool:
    import psutil

    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True
