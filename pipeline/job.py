"""One job: a composed configuration, checked, and run in the project or in a separate workspace.

Results of the jobs of a sweep are files, one for each, in the sweep's folder: what starts them may be another process,
or another machine.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from pipeline.cache.remote_cache import without_remote
from pipeline.caveats import failures
from pipeline.compose import effective, resolved
from pipeline.forms import Params, Section
from pipeline.run import NOT_BEGUN, run
from pipeline.search import NoRanking, Stopped, frontier, searching, tracked
from pipeline.sweep.isolated import isolated
from pipeline.sweep.snapshot import NoSnapshot, take
from pipeline.sweep.sweep import JobResult, Sweep
from pipeline.track import without_address
from pipeline.tracking.record import run_name
from pipeline.workspace import AWAY_VARIABLE, crash_of, locked, problems_of_lock, read_reports, root, without_git
from truehalf.codes import coded
from truehalf.config.named_files import missing_files
from truehalf.config.params import read_params
from truehalf.config.schema import Config
from truehalf.config.typed import ConfigErrors
from truehalf.files import remove, swap_in
from truehalf.models.configuration import validated

_BROUGHT_BACK = ("params.yaml", "dvc.lock", "experiment.yaml", "artifacts/fp16/decisions.json", "artifacts/verify")


def execute(config: DictConfig, number: int, overrides: list[str]) -> int:
    """Run a configuration; the exit code is 0, 1 for a failure, 2 for a bad configuration, 130 for Ctrl-C."""
    sweep, job = Sweep.joined(), JobResult(number, overrides)
    started = time.time()
    try:
        values = resolved(config)
        code, place = _run(effective(_checked(values)), sweep, job)
        job.reason = job.reason or _reason(place) if code in (1, NOT_BEGUN) else None
        if code == NOT_BEGUN:
            (place / "reports" / "error.json").unlink(missing_ok=True)  # reports are those of the run before
    except (ConfigErrors, OmegaConfBaseException, NoSnapshot) as error:
        print(error, file=sys.stderr)
        code, job.reason = 2, str(error).strip().splitlines()[-1].removeprefix("  - ")
    except OSError as error:  # a full disk, a file that another has removed: other jobs go on
        traceback.print_exc()
        code, job.reason = 1, f"{type(error).__name__}: {error}"
    if sweep is not None:
        job.exit_code, job.seconds = code, round(time.time() - started, 1)
        sweep.note(job)
    return code


def name_of(values: Params) -> str:
    """Of a run's workspace and of its folder in runs/: model, decoder, precision, and a digest of all its values but
    those that say where it runs and is logged.
    """
    params = {key: value for key, value in values.items() if key not in ("workspace", "tracking")}
    digest = hashlib.sha256(json.dumps(params, sort_keys=True).encode()).hexdigest()
    return f"{run_name(params)}-{digest[:8]}"


def claim_of(values: Params) -> str:
    """What the jobs of a sweep have in common that are one run, logged to one place."""
    digest = hashlib.sha256(json.dumps(values["tracking"], sort_keys=True).encode()).hexdigest()
    return f"{name_of(values)}-{digest[:8]}"


def _run(values: Params, sweep: Sweep | None, job: JobResult) -> tuple[int, Path]:
    """The exit code, and the folder with the run's reports; of a search, those of the run that it has chosen."""
    name = job.name = name_of(values)
    if not (values["workspace"]["isolated"] or (sweep is not None and sweep.parallel)):
        project = root() if AWAY_VARIABLE in os.environ else None
        if not searching(values):
            return run(root(), values, project=project), root()
        return _searched(_Place(root(), project, None), values, job)
    project = root() if sweep is None else Path(sweep.project)
    if sweep is not None and sweep.parallel and (first := sweep.first_with(claim_of(values), job.number)) != job.number:
        job.same_as = first
        return 0, project / "runs" / name
    snapshot = sweep.snapshot if sweep is not None and sweep.snapshot else take(project)
    with isolated(project, snapshot, name, values) as folder, _output(sweep, job.number) as output:
        place = _Place(folder, project, output)
        return _searched(place, values, job) if searching(values) else place.once(values)


@dataclass(frozen=True)
class _Place:
    """Where runs work whose reports are brought back; see pipeline.run for the attributes."""

    folder: Path
    project: Path | None
    output: TextIO | None

    def once(self, values: Params) -> tuple[int, Path]:
        """Run a configuration; the exit code, and what was brought back. A run that was stopped says nothing of itself:
        what an earlier one has left in its folder stays.
        """
        kept = (self.project or self.folder) / "runs" / name_of(values)
        code = run(self.folder, values, project=self.project, output=self.output)
        if code != 130:
            collect_reports(self.folder, kept)
        return code, kept


def _searched(place: _Place, values: Params, job: JobResult) -> tuple[int, Path]:
    """Run a search; the workspace holds the chosen run afterwards."""
    project = place.project or place.folder

    def parts_of(count: int, samples: int) -> list[Section]:
        folder = project / "runs" / ".ranking" / name_of(values)
        options = ["--count", str(count), "--samples", str(samples), "--checkpoint", str(folder / "checkpoint.json")]
        command = [sys.executable, "-m", "stages.frontier", *options, "--out", str(folder / "parts.json")]
        done = subprocess.run(command, cwd=place.folder, stdout=subprocess.DEVNULL, stderr=place.output)
        if done.returncode:
            raise NoRanking
        rows: list[Section] = json.loads((folder / "parts.json").read_text())
        return rows

    stream = sys.stdout if place.output is None else place.output
    with tracked(values, project, job.overrides), contextlib.redirect_stdout(stream):
        try:
            step = frontier(values, place.once, parts_of)
        except Stopped as stopped:
            return stopped.code, stopped.folder
        except NoRanking:
            job.reason = "the parts of the model could not be ranked"
            return 1, project / "runs" / name_of(values)
        job.name = step.folder.name
        if step.run.verdict == "not verified":
            message = "the gates cannot be judged (not verified), so nothing is inside them"
            job.reason = coded("nothing-verified", message)
    return 0 if step.passed else 1, step.folder


@contextlib.contextmanager
def _output(sweep: Sweep | None, number: int) -> Iterator[TextIO | None]:
    """Where a job prints to: jobs side by side to one file each."""
    if sweep is None or not sweep.parallel:
        yield None
        return
    with sweep.log_of(number).open("w") as output:
        yield output


def collect_reports(place: Path, kept: Path) -> None:
    """Copy what a run says of itself into a folder of the project, which is replaced as a whole."""
    waiting = "pipeline: another run brings its reports to runs/; waiting"
    kept.parent.mkdir(parents=True, exist_ok=True)
    with locked(kept.parent / ".brought.lock", waiting):
        _replace(place, kept)


def _replace(place: Path, kept: Path) -> None:
    building = kept.with_name(f"{kept.name}.partial")
    remove(building)
    building.mkdir()
    if (place / "reports").exists():
        shutil.copytree(place / "reports", building / "reports")
    for name in _BROUGHT_BACK:
        source, target = place / name, building / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target)
        elif source.exists():
            shutil.copy2(source, target)
    swap_in(building, kept)


def _checked(values: Params) -> Config:
    """The configuration, typed; or ConfigErrors with all that is wrong, files that are not there included."""
    errors: list[str] = []
    config: Config | None = None
    try:
        config = validated(values)
    except ConfigErrors as error:
        errors += error.errors
    keys = {error.partition(":")[0] for error in errors}
    errors += [error for error in missing_files(values, root()) if error.partition(":")[0] not in keys]
    if not keys:
        errors += [*without_remote(values["workspace"], root()), *without_address(values["tracking"])]
    errors += [*problems_of_lock(root()), *without_git(root())]
    if errors or config is None:
        raise ConfigErrors(errors)
    return config


def _reason(place: Path) -> str:
    """Why a run failed, in a line."""
    if crash := crash_of(place):
        return f"{crash['stage']}: {crash['message']}".splitlines()[0]
    found = failures(read_reports(place), read_params(place)) if (place / "params.yaml").exists() else []
    return "; ".join(found) or "no stage says why; see its log"
