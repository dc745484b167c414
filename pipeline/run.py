"""One run: params.yaml, then DVC. Only DVC decides what is out of date and executes it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

from pipeline.run_record import Crash, Run
from pipeline.workspace import PROJECT_VARIABLE, VERBOSE_VARIABLE, remove_leftovers, write_params
from truehalf.files import locked, remove, write_json

LOCK_FILE = ".truehalf.lock"
PASSED, FAILED, NOT_BEGUN, STOPPED = 0, 1, 2, 130
_WAITING = "pipeline: another run is at work in this workspace; waiting for it to end"
_STOP_TIMEOUT_S = 30


@dataclass(frozen=True)
class _Place:
    """Place of a run.

    Attributes:
        folder: the workspace.
        lock: file descriptor of its lock, which every process of the run inherits.
        project: the folder whose runs/ and mlflow.db get the run of a sweep's job; None: the workspace.
        output: file for everything that is printed; None: this process's own streams.
    """

    folder: Path
    lock: int
    project: Path | None
    output: TextIO | None


def run(folder: Path, values: Mapping[str, Any], project: Path | None = None, output: TextIO | None = None) -> int:
    """Run the chain for a checked configuration; return PASSED, FAILED, NOT_BEGUN (bad input) or STOPPED (Ctrl-C).

    Stages print progress and verdict. After a crash the last good files are put back, and `finish` is called from
    here. A run that could not begin leaves the workspace as it was.

    Args:
        folder, project, output: see _Place.
    """
    with locked(folder / LOCK_FILE, _WAITING) as lock, tempfile.TemporaryDirectory() as kept:
        remove_leftovers(folder)
        _copy_of_inputs(folder, Path(kept))
        write_params(folder, values)
        code = _run_chain(_Place(folder, lock, project, output))
        if code == NOT_BEGUN:
            _copy_of_inputs(Path(kept), folder)
        return code


def _copy_of_inputs(source: Path, target: Path) -> None:
    """Copy params.yaml and the files of the stage `inputs`, which DVC's cache does not hold, where they exist."""
    for name in ("params.yaml", "reports/inputs.json", "artifacts/inputs"):
        place = target / name
        if (source / name).is_dir():
            remove(place)
            shutil.copytree(source / name, place)
        elif (source / name).exists():
            place.parent.mkdir(exist_ok=True)
            shutil.copy2(source / name, place)


def _run_chain(place: _Place) -> int:
    error = place.folder / "reports" / "error.json"
    error.unlink(missing_ok=True)
    finished = _finished_at(place.folder)
    code = _execute(["dvc", "repro", *([] if VERBOSE_VARIABLE in os.environ else ["--quiet"])], place)
    if code == 0:
        return PASSED
    if code != STOPPED and _finished_at(place.folder) != finished:  # every stage ran, and the gate failed
        return FAILED
    crash = Run.read(place.folder).crash
    has_begun = crash is None or crash.exit_code != NOT_BEGUN
    if code != STOPPED and has_begun:
        if crash is None:  # the process ended before it could write one
            message = "a process was killed, or DVC itself failed; `dvc repro` says which"
            write_json(error, asdict(Crash("unknown", message)))
        _execute(["pipeline.finish"], place)
    _execute(["dvc", "checkout", "--quiet"], place, quiet=True)  # DVC deletes a stage's outs before it runs it
    if code == STOPPED:
        return STOPPED
    return FAILED if has_begun else NOT_BEGUN


def _finished_at(folder: Path) -> int | None:
    """Time of the last report that `finish` wrote."""
    file = folder / "reports" / "track.json"
    return file.stat().st_mtime_ns if file.exists() else None


def _execute(module: list[str], place: _Place, quiet: bool = False) -> int:
    """Run `python -m <module>` in the workspace; on Ctrl-C wait for it to stop (the terminal has signalled it, too)."""
    output = subprocess.DEVNULL if quiet else place.output
    process = subprocess.Popen(
        [sys.executable, "-m", *module],
        cwd=place.folder,
        env=_environment(place),
        pass_fds=(place.lock,),
        stdout=output,
        stderr=output,
    )
    try:
        return process.wait()
    except KeyboardInterrupt:
        try:
            process.wait(timeout=_STOP_TIMEOUT_S)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            process.send_signal(signal.SIGTERM)
            process.wait()
        print("pipeline: stopped; finished stages are kept, the next run goes on from there", file=sys.stderr)
        return STOPPED


def _environment(place: _Place) -> dict[str, str]:
    """The environment in which `python`, which DVC calls, is this one, activated or not."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    project = {} if place.project is None else {PROJECT_VARIABLE: str(place.project)}
    return os.environ | {"PATH": path} | project
