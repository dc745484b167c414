"""Find files and folders that a configuration names and that do not exist, before anything runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from truehalf.codes import coded
from truehalf.config.schema import DATA_NEEDS, Config
from truehalf.config.typed import did_you_mean

_DATA = {"folder": "folder", "annotations": "file", "file": "file or folder"}  # keys of `data` that are paths


def missing_files(config: Config, root: Path) -> Iterator[str]:
    """Yield an error line for each file or folder that is named and is not there.

    Args:
        root: the workspace; paths are relative to it.
    """
    named = {f"data.{key}": (getattr(config.data, key), kind) for key, kind in _DATA.items() if key in _read(config)}
    for key, (name, expected) in {"model.checkpoint": (config.model.checkpoint, "file"), **named}.items():
        if name is None:
            continue
        path = root / name
        kind = _kind(path)
        if kind is None:
            message = f"{key}: no such {expected}: {path}; paths are relative to {root}{_like(path)}"
            yield coded("file-missing", message)
        elif kind not in expected:
            message = f"{path} is a {kind}; expected a {expected}"
            yield coded("wrong-file", f"{key}: {folder_instead(path) if kind == 'folder' else message}")


def _read(config: Config) -> dict[str, str]:
    return DATA_NEEDS.get(config.data.source, {})


def _like(path: Path) -> str:
    """Return a "did you mean" with the names in the same folder."""
    try:
        return did_you_mean(path.name, sorted(other.name for other in path.parent.iterdir()))
    except OSError:
        return ""


def _kind(path: Path) -> str | None:
    """Return folder or file; None if there is nothing, as for a name that is too long."""
    try:
        if path.is_dir():
            return "folder"
        return "file" if path.exists() else None
    except (OSError, ValueError):
        return None


def folder_instead(path: Path) -> str:
    """Return the error of a folder given for a file: of `transformers`, or with the file in it."""
    if (path / "config.json").is_file():
        name = path.as_posix() if path.is_absolute() else f"./{path.as_posix()}"
        return (
            f"{path} is a folder with a config.json, as transformers writes it; expected a file, or "
            f"model=huggingface model.options.id={name}"
        )
    return f"{path} is a folder; expected a file in it"
