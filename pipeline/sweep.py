"""A sweep (`-m`): results of its jobs, the table at its end, and a folder of its own for each job beside others.

With Hydra's basic launcher jobs run one after another in the project. With joblib or submitit each works in a copy of
the project's files, on the project's DVC cache. Results of jobs are files, since a job may be another process or run on
another machine.
"""

from __future__ import annotations

import configparser
import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from pipeline.entry import REFUSALS, composed_values, refusal_text
from pipeline.run import FAILED, NOT_BEGUN, STOPPED, run
from pipeline.run_record import Run, read_json_or_none
from pipeline.track import NOT_LOGGED
from pipeline.workspace import SWEEP_VARIABLE, root
from truehalf.codes import coded
from truehalf.config.params import COMPOSED
from truehalf.config.typed import ConfigErrors
from truehalf.files import locked, write_json
from truehalf.report.terminal import terminal_width

_SERIAL_LAUNCHER = "hydra._internal.core_plugins.basic_launcher.BasicLauncher"
_FOLDERS = Path(".dvc") / "tmp" / "jobs"  # neither git nor DVC looks into it
_LOCK = ".job.lock"
_LARGE_BYTES = 10_000_000  # a larger file is linked, not copied
_FIGURE_WIDTH = 10
_COLUMNS = {"job": "right", "what differs": "left", "state": "left", "seconds": "right", "reports, or why not": "left"}


@dataclass
class JobResult:
    """A job that has ended.

    Attributes:
        name: of its folder in runs/; None where the configuration was refused.
        reason: why it failed.
    """

    number: int
    overrides: list[str]
    name: str | None = None
    exit_code: int = 0
    seconds: float = 0.0
    reason: str | None = None


# --- results ----------------------------------------------------------------------------------------------------------


def begin(project: Path, arguments: Sequence[str]) -> None:
    """Name the sweep after its arguments, and remove results and folders that earlier ones have left.

    Raises:
        OSError: runs/ cannot be written.
    """
    digest = hashlib.sha256(json.dumps(sorted(arguments)).encode()).hexdigest()[:12]
    os.environ[SWEEP_VARIABLE] = f"sweep-{digest}"
    shutil.rmtree(_results(project), ignore_errors=True)
    _results(project).mkdir(parents=True)
    for lock in (project / _FOLDERS).glob(f"*/{_LOCK}"):
        with contextlib.suppress(OSError), lock.open("a") as opened:  # BlockingIOError: its job is at work
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)


def run_job(config: DictConfig) -> int:
    """Run a configuration as a job of the sweep and write its result to runs/.sweeps/<sweep>/<number>.json.

    Returns:
        the exit code, see pipeline.entry.execute.
    """
    hydra = HydraConfig.get()
    result = JobResult(int(hydra.job.num), list(hydra.overrides.task))
    started = time.time()
    try:
        values = composed_values(config)
        result.name = Run(root(), values).slug
        if hydra.launcher["_target_"] == _SERIAL_LAUNCHER:
            result.exit_code = run(root(), values)
            result.reason = _reason(result.exit_code, root())
        else:
            result.exit_code = _run_beside(values, result)
    except REFUSALS as error:
        text = refusal_text(error)
        print(text, file=sys.stderr)
        result.exit_code, result.reason = NOT_BEGUN, text.strip().splitlines()[-1].removeprefix("  - ")
    except OSError as error:  # a full disk, a file that another process has removed: other jobs go on
        traceback.print_exc()
        result.exit_code, result.reason = FAILED, f"{type(error).__name__}: {error}"
    result.seconds = round(time.time() - started, 1)
    note(root(), result)
    return result.exit_code


def _run_beside(values: dict[str, Any], result: JobResult) -> int:
    """Run a job of a parallel sweep in a folder of its own."""
    values[COMPOSED]["files"] = {}  # conf/ is not whole in a copy of the project
    project = root()
    log = log_of(project, result.number)
    with job_folder(project, str(result.name), values) as folder, log.open("w") as output:
        code = run(folder, values, project, output)
        result.reason = _reason(code, folder)
    state = f"failed ({code})" if code else "done"
    parts = [f"sweep: #{result.number} {' '.join(result.overrides)}", state, *filter(None, [result.reason])]
    print(": ".join(parts), flush=True)
    return code


def _reason(code: int, folder: Path) -> str | None:
    """One line on why the run of a workspace failed or was not logged; None otherwise."""
    if code == STOPPED:
        return None
    record = Run.read(folder)
    if code and record.crash:
        if code == NOT_BEGUN:  # the reports are those of the run before
            (folder / "reports" / "error.json").unlink()
        return f"{record.crash.stage}: {record.crash.message}".splitlines()[0]
    outcome = read_json_or_none(folder / "reports" / "track.json")
    unlogged = [outcome["message"]] if outcome and outcome["status"] == NOT_LOGGED else []
    failed = record.failures or ["no stage says why"] if code else []
    return "; ".join([*failed, *unlogged]) or None


def note(project: Path, result: JobResult) -> None:
    """Write runs/.sweeps/<sweep>/<number>.json."""
    write_json(_results(project) / f"{result.number}.json", asdict(result))


def log_of(project: Path, number: int) -> Path:
    """Place of the output of a job that runs beside others."""
    return _results(project) / f"{number}.log"


def end(project: Path) -> int:
    """Print the table of the jobs that ended; return the largest of their exit codes."""
    results = [JobResult(**json.loads(path.read_text())) for path in _results(project).glob("*.json")]
    results.sort(key=lambda result: result.number)
    alike = set.intersection(*(set(result.overrides) for result in results)) if len(results) > 1 else set()
    rows = []
    for result in results:
        differs = " ".join(each for each in result.overrides if each not in alike)
        where = "; ".join(filter(None, (result.reason, result.name and f"runs/{result.name}")))
        state = f"failed ({result.exit_code})" if result.exit_code else "done"
        rows.append([str(result.number), differs, state, f"{result.seconds:.0f}", where])
    if rows:
        _print_table(rows)
    if failed := [str(result.number) for result in results if result.exit_code]:
        message = f"sweep: {len(failed)} of {len(results)} jobs failed: #{', #'.join(failed)}"
        print(coded("jobs-failed", message), file=sys.stderr)
    return max((result.exit_code for result in results), default=0)


def _print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print the table of the jobs, as wide as the terminal."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=os.environ[SWEEP_VARIABLE], title_justify="left", title_style="bold")
    for name, side in _COLUMNS.items():
        figures: dict[str, Any] = {"justify": "right", "max_width": _FIGURE_WIDTH} if side == "right" else {}
        table.add_column(name, overflow="fold", **figures)
    for row in rows:
        table.add_row(*map(escape, row))
    Console(width=terminal_width(), highlight=False).print(table)


def _results(project: Path) -> Path:
    return project / "runs" / ".sweeps" / os.environ[SWEEP_VARIABLE]


# --- a folder for a job -----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def job_folder(project: Path, name: str, values: Mapping[str, Any]) -> Iterator[Path]:
    """Copy the files that git lists, uncommitted ones included, link those that only the configuration names, and use
    the project's DVC cache. The folder is removed at the end.

    Raises:
        ConfigErrors: git does not list the project's files.
    """
    (project / _FOLDERS).mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=project / _FOLDERS))
    try:
        with locked(place / _LOCK, f"sweep: {place} is in use; waiting"):
            for file in _listed(project):
                _bring(project / file, place / file, copies=True)
            for file in _named(project, {key: value for key, value in values.items() if key != "tracking"}):
                _bring(project / file, place / file, copies=False)
            _share_cache(project, place)
            yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _listed(project: Path) -> list[Path]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    if done.returncode:
        message = f"{project}: expected a git repository, whose files each job of a sweep copies: {done.stderr.strip()}"
        raise ConfigErrors([coded("file-missing", message)])
    return [Path(name) for name in dict.fromkeys(done.stdout.split("\0")) if name and name != "dvc.lock"]


def _named(project: Path, values: object) -> Iterator[Path]:
    """Files and folders of the project that a configuration names, relative to it; with an ONNX file those beside it
    that begin with its name, which hold its weights.
    """
    if isinstance(values, Mapping):
        values = list(values.values())
    if isinstance(values, list):
        for value in values:
            yield from _named(project, value)
    elif isinstance(values, str) and values and (project / values).exists():
        relative = Path(values)
        if relative.is_absolute() or ".." in relative.parts or not relative.parts:
            return
        yield relative
        if relative.suffix == ".onnx":
            beside = sorted((project / relative).parent.iterdir())
            yield from (relative.parent / file.name for file in beside if file.name.startswith(relative.stem))


def _bring(source: Path, target: Path, copies: bool) -> None:
    """Copy or link a file; link a folder, or what is missing in it. Files above 10 MB are linked; those of an ONNX
    model are copied, since ONNX reads no weights through links.
    """
    if source.is_dir() and target.is_dir() and not target.is_symlink():
        for entry in source.iterdir():
            if entry.name != "__pycache__":
                _bring(entry, target / entry.name, copies)
        return
    if target.exists() or not source.exists():  # git lists files that were deleted
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    is_copied = copies and not source.is_symlink() and source.stat().st_size <= _LARGE_BYTES
    if source.is_file() and (is_copied or _is_of_model(source)):
        shutil.copy2(source, target)
    else:
        target.symlink_to(source.resolve())


def _is_of_model(file: Path) -> bool:
    return any(file.name.startswith(model.stem) for model in file.parent.glob("*.onnx"))


def _share_cache(project: Path, place: Path) -> None:
    """Write DVC's local configuration: the project's own, its cache, and no git, from which nothing is committed."""
    command = [sys.executable, "-m", "dvc", "cache", "dir"]
    cache = subprocess.run(command, cwd=project, capture_output=True, text=True, check=True).stdout.strip()
    local = configparser.ConfigParser(interpolation=None)
    local.read(project / ".dvc" / "config.local")
    core = {"no_scm": "true", "site_cache_dir": str(place / ".dvc/tmp/site")}
    local.read_dict({"core": core, "cache": {"dir": cache}})
    file = place / ".dvc" / "config.local"
    file.touch(mode=0o600)  # the project's may hold keys to a remote
    with file.open("w") as opened:
        local.write(opened)
