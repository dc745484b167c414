"""The workspace of a run: its place, its locks, its params.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from truehalf.codes import coded
from truehalf.errors import StageError
from truehalf.files import read_yaml, remove, write_text

CONF = Path(__file__).resolve().parents[1] / "conf"
PROJECT_VARIABLE = "TRUEHALF_PROJECT"  # environment: the folder whose runs/ and mlflow.db get the run of a sweep's job
SWEEP_VARIABLE = "TRUEHALF_SWEEP"  # environment: id of the sweep that a run is a job of
VERBOSE_VARIABLE = "TRUEHALF_VERBOSE"  # environment: the terminal shows what DVC says
_HEADER = "# Generated from conf/ by `python -m pipeline`; change conf/ or the command line, not this file.\n"


def root() -> Path:
    """The current folder when it holds a dvc.yaml, else the project that this code belongs to."""
    here = Path.cwd()
    return here if (here / "dvc.yaml").exists() else CONF.parent


def remove_leftovers(folder: Path) -> None:
    """Remove the half-built files of stages that were killed. Call it with the workspace's lock held."""
    for suffix in ("partial", "replaced"):
        for path in [*folder.glob(f"artifacts/*.{suffix}"), *folder.glob(f"reports/*.{suffix}")]:
            remove(path)


def write_params(folder: Path, values: Mapping[str, Any]) -> None:
    """Write params.yaml whole."""
    write_text(folder / "params.yaml", _HEADER + yaml.safe_dump(dict(values), sort_keys=False))


def lock_problems(folder: Path) -> list[str]:
    """The error message where dvc.lock is broken, for which DVC would end every run; []: it is not."""
    lock = folder / "dvc.lock"
    try:
        if lock.exists():
            read_yaml(lock, "dvc.lock", "YAML")
    except StageError as error:
        return [coded(error.code, f"{error.text}; delete the file: finished stages come back from DVC's cache")]
    return []


def git_problems(folder: Path) -> list[str]:
    """The error message where a folder is in no git repository and DVC is not told to do without; []: it is fine."""
    settings = [path.read_text() for path in (folder / ".dvc").glob("config*") if path.is_file()]
    has_git = any((each / ".git").exists() for each in (folder, *folder.parents))
    if has_git or any("no_scm" in each for each in settings):
        return []
    message = f"{folder}: no git repository, which DVC needs; run `git init` there, or `dvc config core.no_scm true`"
    return [coded("file-missing", message)]
