"""Files and functions that a configuration names and that do not exist: found before anything runs."""

from __future__ import annotations

import ast
import importlib.util
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from truehalf.codes import coded
from truehalf.config.rules import DATA_NEEDS
from truehalf.config.typed import did_you_mean
from truehalf.json_values import Json, JsonObject

_TAGS = {
    bytes([field * 8 + wire]) for field, wire in ((1, 0), (5, 0), *((field, 2) for field in (2, 3, 4, 6, 7, 8, 14)))
}
_LONG_TAGS = (b"\xa2\x01", b"\xca\x01", b"\xd2\x01")  # training_info, functions, configuration
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
        elif key == "model.checkpoint" and _text(values, "model.source") == "onnx" and not _may_be_onnx(path):
            begins = "it begins as no ONNX file does (a pointer of git-lfs, or another file?)"
            found.append(coded("file-unreadable", f"{key}: {path}: expected an ONNX model; {begins}"))
    return found


def _may_be_onnx(path: Path) -> bool:
    """Whether a file begins with a field of ModelProto: a tag is eight times the field's number plus its wire type."""
    try:
        with path.open("rb") as file:
            start = file.read(2)
    except OSError:
        return True  # reading it says why
    return start[:1] in _TAGS or start in _LONG_TAGS


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


def missing_functions(values: JsonObject, root: Path) -> list[str]:
    """A message, which starts with the key, for each module:function that is named and is not there. Nothing is
    imported: a module of the workspace is read, of an installed package only the package is looked for.

    Args:
        values, root: see missing_files.
    """
    return [message for key, name in _functions(values) for message in _missing_function(key, name, root)]


def _functions(values: JsonObject) -> Iterator[tuple[str, str]]:
    keys = ["model.options.factory", "model.options.prepare", "precision.custom_rule"]
    keys += ["data.function"] if _text(values, "data.source") == "function" else []
    for key in keys:
        if (name := _text(values, key)) is not None:
            yield key, name
    metrics = _at(values, "verify.metrics")
    for entry in metrics if isinstance(metrics, list) else ():
        yield "verify.metrics", re.split(r"\s*[<>]=", str(entry))[0]


def _missing_function(key: str, name: str, root: Path) -> Iterator[str]:
    module, _, attribute = name.partition(":")
    if not all(part.isidentifier() for part in module.split(".")) or not attribute:
        return  # for the check of the key's syntax to name
    place = root.joinpath(*module.split("."))
    file = place.with_suffix(".py") if _kind(place.with_suffix(".py")) else place / "__init__.py"
    if not _kind(file):
        top = module.split(".")[0]
        if not _kind(root / top) and importlib.util.find_spec(top) is None:
            likely = did_you_mean(module, (path.stem for path in root.glob("*.py")))
            message = f"{key}: {name!r}: there is no module {module!r} in {root}, nor among what is installed{likely}"
            yield coded("file-missing", message)
        return
    try:
        names = _names(ast.parse(file.read_text(encoding="utf-8")))
    except (SyntaxError, ValueError, OSError):
        return  # importing it says where
    if names.isdisjoint({attribute.split(".")[0], *_BINDS_OTHERS}):
        message = f"{key}: {name!r}: {file} has no {attribute!r}{did_you_mean(attribute, names)}"
        yield coded("function-fails", message)


_BINDS_OTHERS = ("*", "__getattr__", "globals")


def _names(module: ast.Module) -> set[str]:
    """Names that stand anywhere in a module, those that it imports included."""
    kinds = ("asname", "name", "id")
    return {next(filter(None, (getattr(node, kind, None) for kind in kinds)), "") for node in ast.walk(module)}


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
