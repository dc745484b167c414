"""Before a sweep: what its jobs share. After it: the table of what became of them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

from pipeline.cache.remote_cache import without_remote
from pipeline.sweep.isolated import remove_abandoned
from pipeline.sweep.launcher_patches import patch_launcher
from pipeline.sweep.snapshot import NoSnapshot, take
from pipeline.sweep.sweep import VARIABLE, JobResult, Sweep
from pipeline.track import NOT_LOGGED
from pipeline.tracking.record import pending_records
from pipeline.workspace import root
from truehalf.codes import coded
from truehalf.report.terminal import print_table

_SERIAL = "hydra._internal.core_plugins.basic_launcher.BasicLauncher"
_RAY = "hydra_plugins.truehalf.RayLauncher"
_HERE_ON_RAY = (
    "workspace: expected isolated with hydra/launcher=ray, whose workers do not see the project; got here: "
    "leave workspace=here out"
)
_NO_FOLDER = "sweep: expected a folder runs/ that can be written, for logs, results and reports of its jobs"

_at_work = contextlib.ExitStack()  # ends with this process
_started: list[tuple[Sweep, list[list[str]]]] = []  # with the overrides of each job that was launched


class SweepHook(Callback):
    """Hydra calls it before the first job, when it is known which launcher will run them."""

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        project = root()
        arguments = list(OmegaConf.select(config, "hydra.overrides.task"))
        launcher = str(OmegaConf.select(config, "hydra.launcher._target_"))
        chosen = str(OmegaConf.select(config, "hydra.runtime.choices.workspace"))
        parallel = launcher != _SERIAL and "workspace=here" not in arguments
        if launcher == _RAY and not parallel:
            raise _refused(coded("in-conflict", _HERE_ON_RAY))
        try:
            snapshot = take(project) if parallel or chosen == "isolated" else ""
        except NoSnapshot as error:
            raise _refused(error) from error
        pull, push = (bool(OmegaConf.select(config, f"workspace.{key}")) for key in ("pull", "push"))
        if missing := without_remote({"pull": pull, "push": push}, project):
            raise _refused(*missing)
        digest = hashlib.sha256(json.dumps([sorted(arguments), snapshot]).encode()).hexdigest()[:12]
        sweep = Sweep(f"sweep-{digest}", str(project), snapshot, parallel, arguments, pull, push)
        try:
            sweep = _at_work.enter_context(sweep.begun())
        except OSError as error:
            message = f"{_NO_FOLDER}; got {error.filename}: {error.strerror}"
            raise _refused(coded("file-unwritable", message)) from error
        remove_abandoned(project)
        if pull:
            _remote_cache(sweep, "pull")
        os.environ[VARIABLE] = sweep.text()
        jobs: list[list[str]] = []
        if launcher != _SERIAL:
            patch_launcher(launcher, sweep, jobs)
        _started.append((sweep, jobs))


def _refused(*lines: object) -> SystemExit:
    """The end of a sweep that cannot begin; of another exception Hydra would make a warning, and go on."""
    print(*lines, sep="\n", file=sys.stderr)
    return SystemExit(2)


def _remote_cache(sweep: Sweep, what: str, *locks: str) -> None:
    """Pull or push once for all jobs, which share a cache. Where the remote fails it says so, and nothing is lost."""
    command = [sys.executable, "-m", "pipeline.cache.remote_cache", what, *locks]
    subprocess.run(command, cwd=sweep.project, check=False)


def push() -> None:
    """Send what the jobs of the sweep made to the remote, where it was asked for."""
    if not _started or not _started[0][0].pushes:
        return
    sweep, _ = _started[0]
    runs = Path(sweep.project) / "runs"
    locks = (runs / str(result.name) / "dvc.lock" for result in sweep.results().values())
    _remote_cache(sweep, "push", *(str(lock) for lock in locks if lock.exists()))


def finish() -> int:
    """Print what became of the sweep's jobs; the exit code is the largest of theirs, 1 where one has not ended."""
    if not _started:
        return 0
    sweep, jobs = _started[0]
    if not any(sweep.folder.iterdir()):  # Hydra refused the command line and has printed why, or Ctrl-C came before
        sweep.folder.rmdir()
        return 1
    ended = sweep.results()
    jobs = jobs or [result.overrides for result in ended.values()]
    failed = [number for number in range(len(jobs)) if number not in ended or ended[number].exit_code]
    if sweep.parallel and jobs:
        _print_table(sweep, jobs, ended)
        _print_pending(sweep, ended)
    if failed and len(jobs) > 1:
        message = f"sweep: {len(failed)} of {len(jobs)} jobs failed: #{', #'.join(map(str, failed))}"
        print(coded("jobs-failed", message), file=sys.stderr)
    return max([int(len(ended) < len(jobs)), *(result.exit_code for result in ended.values())])


def _print_pending(sweep: Sweep, ended: Mapping[int, JobResult]) -> None:
    """How many runs of the sweep wait to be logged, and why."""
    waiting = sum(record.sweep == sweep.id for record in pending_records(Path(sweep.project)))
    if not waiting:
        return
    files = (Path(sweep.project) / "runs" / str(result.name) / "reports/track.json" for result in ended.values())
    outcomes = [json.loads(file.read_text()) for file in files if file.exists()]
    why = next((outcome["message"] for outcome in outcomes if outcome["status"] == "pending"), NOT_LOGGED)
    print(coded("not-logged", f"sweep: {waiting} of its runs: {why}"), file=sys.stderr)


_COLUMNS = {"job": "right", "what differs": "left", "state": "left", "seconds": "right", "reports, or why not": "left"}


def _print_table(sweep: Sweep, jobs: list[list[str]], ended: Mapping[int, JobResult]) -> None:
    """What each job was, what became of it, where its reports are."""
    alike = set.intersection(*(set(overrides) for overrides in jobs)) if len(jobs) > 1 else set()
    rows = []
    for number, overrides in enumerate(jobs):
        differs = " ".join(override for override in overrides if override not in alike)
        result = ended.get(number)
        if result is None:
            log = sweep.log_of(number)
            note = f"stopped, or its process was lost: {log}" if log.exists() else "stopped before its first report"
            rows.append([str(number), differs, "not ended", "", note])
            continue
        where = f"runs/{result.name}" if result.name else None
        note = "; ".join(part for part in (result.reason, where) if part)
        rows.append([str(number), differs, "failed" if result.exit_code else "done", f"{result.seconds:.0f}", note])
    print_table(sweep.id, _COLUMNS, rows)
