"""Files that a configuration names and that do not exist: found before anything runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from truehalf.codes import coded
from truehalf.json_values import JsonObject

# What each source of data reads, and whether that is a folder.
_OF_DATA: dict[str, dict[str, bool | None]] = {
    "images": {"folder": True},
    "coco": {"folder": True, "annotations": False},
    "npz": {"file": None},  # a file, or a folder of files
}


def missing_files(values: JsonObject, root: Path) -> list[str]:
    """A message, which starts with the key, for each file or folder that is named and is not there.

    Args:
        values: resolved, not necessarily valid; what is no text is left to `validate`.
        root: the workspace; paths are relative to it.
    """
    return list(_missing(values, root))


def _missing(values: JsonObject, root: Path) -> Iterator[str]:
    checkpoint = _text(values, "model", "checkpoint")
    if checkpoint is not None:
        path = root / checkpoint
        if not path.exists():
            message = f"model.checkpoint: no such file: {path}; give its path, or null where the source takes none"
            yield coded("file-missing", message)
        elif path.is_dir():
            yield coded("wrong-file", f"model.checkpoint: {folder_instead(path)}")
    for key, folder in _OF_DATA.get(_text(values, "data", "source") or "", {}).items():
        place = _text(values, "data", key)
        if place is None:
            continue
        path = root / place
        if not path.exists():
            message = f"data.{key}: no such {'folder' if folder else 'file'}: {path}; paths are relative to {root}"
            yield coded("file-missing", message)
        elif folder is not None and path.is_dir() != folder:
            expected, got = ("folder", "file") if folder else ("file", "folder")
            yield coded("wrong-file", f"data.{key}: {path} is a {got}; expected a {expected}")


def folder_instead(path: Path) -> str:
    """What to do where a checkpoint is a folder."""
    if (path / "config.json").is_file():
        name = path.as_posix() if path.is_absolute() else f"./{path.as_posix()}"
        return (
            f"{path} is a folder with a config.json, as transformers writes it; expected a file, or "
            f"model=huggingface model.options.id={name}"
        )
    return f"{path} is a folder; expected a file in it"


def _text(values: JsonObject, section: str, key: str) -> str | None:
    found = values.get(section)
    value = found.get(key) if isinstance(found, Mapping) else None
    return value if isinstance(value, str) else None
