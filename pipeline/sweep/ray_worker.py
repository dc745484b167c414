"""Job of a Ray worker: unpack the project, run the pipeline in it, return its results.

This module travels to the worker by value, so it imports only the standard library.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Exit code, log, and tar.gz of reports, of what is to be logged, and of DVC's cache if it is not shared. A tuple: the
# other side does not know this module's classes.
Answer = tuple[int, str, bytes]
_SENT_BACK = ("runs", "reports", "params.yaml", "dvc.lock", "artifacts/fp16/decisions.json", "artifacts/verify")


@dataclass(frozen=True)
class Order:
    """One job.

    Attributes:
        arguments: of `python -m pipeline`.
        dvc: text of DVC's local configuration in the worker's workspace, for a separate cache.
        dvc_shared: the same, for the project's cache.
        token: a file in the project's cache; a worker that can write to it shares the cache. Empty: none does.
        sweep: JSON of pipeline.sweep.Sweep; its project becomes the worker's workspace.
        variables: names of the variables of the environment for the sweep, the project, and being away from it.
    """

    arguments: list[str]
    dvc: str
    dvc_shared: str
    token: str
    sweep: str
    variables: tuple[str, str, str]


def unpack(archive: bytes, folder: Path) -> None:
    """Unpack a tar, compressed or not; nothing of it lands outside the folder, where Python can see to that. Links that
    lead outside are left out: what they lead to is on another machine.
    """
    careful: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # of 3.11.4 and later
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        members = [member for member in tar if not _leads_outside(member, folder.resolve())]
        tar.extractall(folder, members=members, **careful)


def _leads_outside(member: tarfile.TarInfo, folder: Path) -> bool:
    target = (folder / member.name).parent / member.linkname
    return member.issym() and not target.resolve().is_relative_to(folder)


def work(archive: bytes, order: Order, *brought: bytes) -> Answer:
    """Run a job.

    Args:
        archive: tar of the project's files.
        order: see Order.
        brought: tars of what the job's configuration names beside them.
    """
    with tempfile.TemporaryDirectory(prefix="truehalf-") as name:
        folder = Path(name)
        for each in (archive, *brought):
            unpack(each, folder)
        shared = os.access(order.token, os.W_OK)
        local = folder / ".dvc" / "config.local"
        local.touch(mode=0o600)
        local.write_text(order.dvc_shared if shared else order.dvc)
        sweep, project, away = order.variables
        variables = {sweep: json.dumps(json.loads(order.sweep) | {"project": name}), project: name, away: "1"}
        process = subprocess.Popen(
            [sys.executable, "-m", "pipeline", *order.arguments],
            cwd=folder,
            env=os.environ | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        with _watched(process, folder):
            log, _ = process.communicate()
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as tar:
            for part in (*_SENT_BACK, *(() if shared else (".dvc/cache",))):
                if (folder / part).exists():
                    tar.add(folder / part, part)
    return process.returncode, log, packed.getvalue()


@contextlib.contextmanager
def _watched(process: subprocess.Popen[str], folder: Path) -> Iterator[None]:
    """End all processes of a job and remove its folder, should this worker die, or the job's first process be killed.

    Ray ends a worker's children, and not theirs: DVC and its stage would go on, and hold the stage's lock. The one who
    watches is no child of this process, and waits at a pipe that closes with it.
    """
    waiting = 'exec 3<&0; (read -r _ <&3 || { kill -s KILL -- "-$1"; rm -rf "$2"; }) >/dev/null 2>&1 &'
    read, write = os.pipe()
    try:
        subprocess.run(["sh", "-c", waiting, "sh", str(process.pid), str(folder)], stdin=read, start_new_session=True)
    finally:
        os.close(read)
    try:
        yield
    finally:
        if process.returncode is not None and process.returncode >= 0:  # it ended by itself
            os.write(write, b"\n")
        os.close(write)
