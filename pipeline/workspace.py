"""The workspace of a run: its lock, its params.yaml, its reports."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import yaml

from pipeline.forms import About, Crash, Params, Reports
from truehalf.codes import coded
from truehalf.errors import StageError
from truehalf.files import read_yaml, write_text

CONF = Path(__file__).resolve().parents[1] / "conf"
STAGES = ("trace", "slim", "calibrate", "fp16", "cast_cleanup", "reference", "verify_fp32", "verify", "engine")
PROJECT_VARIABLE = "TRUEHALF_PROJECT"  # of the environment: whose runs/ and mlflow.db get the run of another folder
ABOUT_VARIABLE = "TRUEHALF_ABOUT"  # of the environment: pipeline.forms.About as JSON, for the programs of a run
VERBOSE_VARIABLE = "TRUEHALF_VERBOSE"  # of the environment: the terminal shows what DVC says
_HEADER = "# Generated from conf/ by `python -m pipeline`; change conf/ or the command line, not this file.\n"


def root() -> Path:
    """The current folder when it holds a dvc.yaml, else the project that this code belongs to."""
    here = Path.cwd()
    return here if (here / "dvc.yaml").exists() else CONF.parent


@contextlib.contextmanager
def locked(path: Path, waiting: str) -> Iterator[int]:
    """Hold an exclusive lock on a file; while another process has it, print `waiting` once and wait.

    Yields the lock's file descriptor. A child that inherits it keeps the lock when this process is killed, so that a
    second run cannot start beside an orphaned DVC; that is why this is flock itself and not a lock library.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(coded("waits-for-another", waiting), file=sys.stderr, flush=True)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def remove_leftovers(folder: Path) -> None:
    """Remove the half-built files of stages that were killed. Call it with the workspace's lock held."""
    for suffix in ("partial", "replaced", "restored"):
        for path in [*folder.glob(f"artifacts/*.{suffix}"), *folder.glob(f"reports/*.{suffix}")]:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def write_params(folder: Path, values: Params) -> None:
    """Write params.yaml atomically, and only when it would say something else: of 512 and 512.0 each is something else
    than the other, to DVC.
    """
    path = folder / "params.yaml"
    text = yaml.safe_dump(dict(values), sort_keys=False)
    with contextlib.suppress(StageError):
        if yaml.safe_dump(read_yaml(path), sort_keys=False) == text:
            return
    write_text(path, _HEADER + text)


def reports_of_run(folder: Path, failed_stage: str | None) -> Reports:
    """Reports of this run: of a run that crashed, those from before the crash; later ones are an earlier run's."""
    reports = read_reports(folder)
    if failed_stage is None:
        return reports
    stale = STAGES[STAGES.index(failed_stage) :] if failed_stage in STAGES else (*STAGES, failed_stage)
    return cast("Reports", {stage: report for stage, report in reports.items() if stage not in stale})


def problems_of_lock(folder: Path) -> list[str]:
    """What is wrong with dvc.lock, which DVC would end each run for: a sentence, or none."""
    lock = folder / "dvc.lock"
    try:
        if lock.exists():
            read_yaml(lock, "dvc.lock", "YAML")
    except StageError as error:
        return [coded(error.code, f"{error.text}; delete the file: finished stages come back from DVC's cache")]
    return []


def without_git(folder: Path) -> list[str]:
    """That a folder is in no git repository, without which DVC does not run unless it is told so: a line, or none."""
    settings = [path.read_text() for path in (folder / ".dvc").glob("config*") if path.is_file()]
    if any((each / ".git").exists() for each in (folder, *folder.parents)) or any(
        "no_scm" in each for each in settings
    ):
        return []
    message = f"{folder}: no git repository, which DVC needs; run `git init` there, or `dvc config core.no_scm true`"
    return [coded("file-missing", message)]


def json_of(path: Path) -> Any:
    """The content of a file; None where it is missing or broken."""
    with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
        return json.loads(path.read_text())
    return None


def about_run() -> About:
    """What started this run; {} where that was no `python -m pipeline`."""
    found: About = json.loads(os.environ.get(ABOUT_VARIABLE, "{}"))
    return found


def crash_of(folder: Path) -> Crash | None:
    """What ended the run of a workspace, by reports/error.json; None where nothing did."""
    found: Crash | None = json_of(folder / "reports" / "error.json")
    return found


def read_reports(folder: Path) -> Reports:
    """reports/<stage>.json of every stage that has one, in the order of the chain; broken files are left out."""
    found = {stage: json_of(folder / "reports" / f"{stage}.json") for stage in (*STAGES, "probe", "inputs")}
    return cast("Reports", {stage: report for stage, report in found.items() if report is not None})
