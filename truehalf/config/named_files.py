"""Files that a configuration names and that do not exist: found before anything runs."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path

from truehalf.codes import coded
from truehalf.config.rules import DATA_NEEDS
from truehalf.config.typed import did_you_mean
from truehalf.json_values import Json, JsonObject

_IS_FOLDER = {"folder": True, "annotations": False, "file": None}  # keys of `data`; None: one or the other


def missing_files(values: JsonObject, root: Path) -> list[str]:
    """A message, which starts with the key, for each file or folder that is named and is not there.

    Args:
        values: resolved, not necessarily valid; what is no text is left to `validate`.
        root: the workspace; paths are relative to it.
    """
    found = []
    named: dict[str, bool | None] = {"model.checkpoint": False}
    source = _text(values, "data.source")
    read = next((keys for name, keys in DATA_NEEDS.items() if name.value == source), {})
    named |= {f"data.{key}": is_folder for key, is_folder in _IS_FOLDER.items() if key in read}
    for key, is_folder in named.items():
        if (place := _text(values, key)) is None:
            continue
        path = root / place
        kind, expected = _kind(path), "folder" if is_folder else "file"
        if kind is None:
            message = f"{key}: no such {expected}: {path}; paths are relative to {root}{_beside(path)}"
            found.append(coded("file-missing", message))
        elif is_folder is not None and kind != expected:
            message = (
                folder_instead(path) if key == "model.checkpoint" else f"{path} is a {kind}; expected a {expected}"
            )
            found.append(coded("wrong-file", f"{key}: {message}"))
    return found


def _beside(path: Path) -> str:
    """The names most like this one, of what is in its folder."""
    try:
        return did_you_mean(path.name, sorted(each.name for each in path.parent.iterdir()))
    except OSError:
        return ""


def _kind(path: Path) -> str | None:
    """folder or file; None where there is nothing, or can be nothing, as under a name that is too long."""
    try:
        return "folder" if stat.S_ISDIR(path.stat().st_mode) else "file"
    except (OSError, ValueError):
        return None


def folder_instead(path: Path) -> str:
    """What to do where a checkpoint is a folder."""
    if (path / "config.json").is_file():
        name = path.as_posix() if path.is_absolute() else f"./{path.as_posix()}"
        return (
            f"{path} is a folder with a config.json, as transformers writes it; expected a file, or "
            f"model=huggingface model.options.id={name}"
        )
    return f"{path} is a folder; expected a file in it"


def _at(values: JsonObject, key: str) -> Json:
    """The value of a dotted key; None where there is none."""
    found: Json = values
    for name in key.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _text(values: JsonObject, key: str) -> str | None:
    value = _at(values, key)
    return value if isinstance(value, str) else None
