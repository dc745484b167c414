"""One run: params.yaml, then DVC. Only DVC decides what is out of date and executes it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from pipeline.forms import About, Params
from pipeline.workspace import (
    ABOUT_VARIABLE,
    PROJECT_VARIABLE,
    VERBOSE_VARIABLE,
    crash_of,
    locked,
    remove_leftovers,
    write_params,
)
from truehalf.codes import CONFIGURATION, codes_in
from truehalf.files import write_text

LOCK_FILE = ".truehalf.lock"
FIRST = "inputs"  # the stage that reads what a run takes from outside, and makes nothing
NOT_BEGUN = 2
# What ends `trace`, which makes the first file, before it has made any: the model is not what the configuration says.
_MISTAKEN = {
    *CONFIGURATION,
    "function-fails",
    "module-fails",
    "revision-moves",
    "wrong-class-count",
    "wrong-dtype",
    "wrong-feeds",
    "wrong-name",
    "wrong-preprocessing",
    "wrong-return",
    "wrong-spec",
}
_WAITING = "pipeline: another run is at work in this workspace; waiting for it to end"


@dataclass(frozen=True)
class _Place:
    """Where a run works.

    Attributes:
        folder: the workspace.
        lock: file descriptor of its lock, which every process of the run inherits.
        about: what started the run.
        project: whose cache and MLflow runs a separate workspace shares with other runs; None: it is the project.
        output: where everything is printed to; None: where this process prints to.
    """

    folder: Path
    lock: int
    about: About
    project: Path | None
    output: TextIO | None


def run(folder: Path, values: Params, about: About, project: Path | None = None, output: TextIO | None = None) -> int:
    """Run the chain for a validated configuration and return the exit code: 0, 1 for a failure, 2 where it could not
    begin as what it would read is not there, cannot be read, or is not what the configuration says, 130 for Ctrl-C.

    Progress and the verdict come from the stages themselves, the verdict from the last. When a stage crashes, DVC stops
    before that; then the last good files are put back, and page, tracked run and verdict are made from here. One that
    could not begin is no run: it leaves the workspace as it was.

    Args:
        folder: the workspace.
        values: of the configuration.
        about, project, output: see _Place.
    """
    with locked(folder / LOCK_FILE, _WAITING) as lock:
        place = _Place(folder, lock, about, project, output)
        remove_leftovers(folder)
        file = folder / "params.yaml"
        before = file.read_text() if file.exists() else None
        write_params(folder, values)
        code = _chain(place)
        if code == NOT_BEGUN and before is not None:
            write_text(file, before)
        return code


def _chain(place: _Place) -> int:
    """Run the stages, and after a crash what they would have done at the end; the exit code."""
    error_file = place.folder / "reports" / "error.json"
    error_file.unlink(missing_ok=True)
    before = _tracked_at(place.folder)
    code = _execute(["dvc", "repro", *([] if VERBOSE_VARIABLE in os.environ else ["--quiet"])], place)
    if code == 0:
        return 0
    if code != 130 and _tracked_at(place.folder) != before:  # all stages ran; the gate failed
        return 1
    if code != 130 and _not_begun(place.folder):
        return NOT_BEGUN
    if code != 130:
        _report_crash(error_file, place)
    _execute(["dvc", "checkout", "--quiet"], place, quiet=True)
    return 130 if code == 130 else 1


def _not_begun(folder: Path) -> bool:
    """True if a stage has refused what the run would read, or what the configuration says of it."""
    if (crash := crash_of(folder)) is None:
        return False
    codes = codes_in(crash["message"].partition("\n")[0])[-1:]
    mistaken = crash["stage"] == "trace" and not _MISTAKEN.isdisjoint(codes)
    return crash["stage"] == FIRST or mistaken


def _report_crash(error_file: Path, place: _Place) -> None:
    """Draw, track and sum up a run that crashed."""
    crash = crash_of(place.folder)
    if crash is None:  # the process ended before it could write one
        message = "a process was killed, or DVC itself failed; `dvc repro` says which"
        crash = {"stage": "unknown", "message": message}
        write_text(error_file, json.dumps(crash))
    _execute(["pipeline.report"], place)
    for program in ("pipeline.track", "pipeline.gate"):
        _execute([program, "--failed-stage", crash["stage"]], place)


def _tracked_at(folder: Path) -> int | None:
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
            process.wait(timeout=30)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            process.send_signal(signal.SIGTERM)
            process.wait()
        print("pipeline: stopped; finished stages are kept, the next run goes on from there", file=sys.stderr)
        return 130


def _environment(place: _Place) -> dict[str, str]:
    """DVC calls `python`: it must be this one, whether or not the environment is activated."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    project = {} if place.project is None else {PROJECT_VARIABLE: str(place.project)}
    return os.environ | {"PATH": path, ABOUT_VARIABLE: json.dumps(place.about)} | project
