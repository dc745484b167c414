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

from pipeline.forms import Crash, Params, Reports
from truehalf.codes import coded
from truehalf.errors import StageError
from truehalf.files import read_yaml, write_text

CONF = Path(__file__).resolve().parents[1] / "conf"
STAGES = ("trace", "slim", "calibrate", "fp16", "cast_cleanup", "reference", "verify_fp32", "verify", "engine")
PROJECT_VARIABLE = "TRUEHALF_PROJECT"  # of the environment: whose runs an isolated workspace works for
AWAY_VARIABLE = "TRUEHALF_AWAY"  # of the environment: this is a worker of a sweep, and may not see its project
VERBOSE_VARIABLE = "TRUEHALF_VERBOSE"  # of the environment: the terminal shows what DVC says
LOCKS = "truehalf.locks"  # a folder in DVC's cache
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
    announced = False
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not announced:
                    print(coded("waits-for-another", waiting), file=sys.stderr, flush=True)
                announced = True
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if is_file_of(descriptor, path):  # else who held it has removed it: others take the one that is there now
                yield descriptor
                return
        finally:
            os.close(descriptor)


def is_file_of(descriptor: int, path: Path) -> bool:
    """Whether an open file is still the one of that name."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), path.stat())
    return False


def lock_in(cache: Path, name: str) -> Path:
    """A lock file in DVC's cache, for `locked`; made where it is not there.

    Its rights are those of the cache's folder, whatever this user's umask: who can write the cache can hold the lock. A
    cache that a group shares (setgid, writable for the group) has then locks that the group shares.
    """
    cache.mkdir(parents=True, exist_ok=True)
    lock = cache / LOCKS / name
    with rights_of(cache):
        lock.parent.mkdir(exist_ok=True)  # not sticky, whatever the cache is: there Linux refuses files of others
        os.close(os.open(lock, os.O_RDWR | os.O_CREAT, 0o666))
    return lock


@contextlib.contextmanager
def rights_of(folder: Path) -> Iterator[None]:
    """What this process makes meanwhile has a folder's rights, instead of those that the user's umask leaves."""
    mask = os.umask(~folder.stat().st_mode & 0o777)
    try:
        yield
    finally:
        os.umask(mask)


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


def crash_of(folder: Path) -> Crash | None:
    """What ended the run of a workspace, by reports/error.json; None where nothing did."""
    found: Crash | None = json_of(folder / "reports" / "error.json")
    return found


def read_reports(folder: Path) -> Reports:
    """reports/<stage>.json of every stage that has one, in the order of the chain; broken files are left out."""
    found = {stage: json_of(folder / "reports" / f"{stage}.json") for stage in (*STAGES, "probe", "inputs")}
    return cast("Reports", {stage: report for stage, report in found.items() if report is not None})
