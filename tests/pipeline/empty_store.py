"""MLflow's SQLite store without runs: to make its tables takes a second, so it is made once."""

from __future__ import annotations

import functools
import shutil
import tempfile
from pathlib import Path

import mlflow

_FOLDERS: list[tempfile.TemporaryDirectory[str]] = []  # deleted when the process ends


def with_empty_store(folder: Path) -> Path:
    """Put it into a folder that has none."""
    if not (folder / "mlflow.db").exists():
        shutil.copy2(_empty_store(), folder / "mlflow.db")
    return folder


@functools.cache
def _empty_store() -> Path:
    _FOLDERS.append(tempfile.TemporaryDirectory(prefix="truehalf-store-"))
    file = Path(_FOLDERS[-1].name) / "mlflow.db"
    mlflow.MlflowClient(f"sqlite:///{file}").search_experiments()
    return file
