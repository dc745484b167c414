"""Files and functions that a configuration names and that do not exist: found before anything runs."""

from __future__ import annotations

import ast
import importlib.util
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from truehalf.codes import coded
from truehalf.config.typed import did_you_mean
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
        kind = _kind(path)
        if kind is None:
            message = f"model.checkpoint: no such file: {path}; give its path, or null where the source takes none"
            yield coded("file-missing", message)
        elif kind == "folder":
            yield coded("wrong-file", f"model.checkpoint: {folder_instead(path)}")
    for key, folder in _OF_DATA.get(_text(values, "data", "source") or "", {}).items():
        place = _text(values, "data", key)
        if place is None:
            continue
        path = root / place
        kind = _kind(path)
        if kind is None:
            message = f"data.{key}: no such {'folder' if folder else 'file'}: {path}; paths are relative to {root}"
            yield coded("file-missing", message)
        elif folder is not None and (kind == "folder") != folder:
            expected = "folder" if folder else "file"
            yield coded("wrong-file", f"data.{key}: {path} is a {kind}; expected a {expected}")


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
    model, verify = values.get("model"), values.get("verify")
    options = {"model": model.get("options") if isinstance(model, Mapping) else None}
    named = {
        "model.options.factory": _text(options, "model", "factory"),
        "model.options.prepare": _text(options, "model", "prepare"),
        "precision.custom_rule": _text(values, "precision", "custom_rule"),
    }
    if _text(values, "data", "source") == "function":
        named["data.function"] = _text(values, "data", "function")
    metrics = verify.get("metrics") if isinstance(verify, Mapping) else None
    entries = metrics if isinstance(metrics, list) else []
    found = [(key, name) for key, name in named.items() if name is not None]
    found += [("verify.metrics", re.split(r"\s*[<>]=", entry)[0]) for entry in entries if isinstance(entry, str)]
    return iter(found)


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
        names = _top_level(ast.parse(file.read_text(encoding="utf-8")))
    except (SyntaxError, ValueError, OSError):
        return  # importing it says where
    if names is not None and attribute.split(".")[0] not in names:
        message = f"{key}: {name!r}: {file} has no {attribute!r}{did_you_mean(attribute, names)}"
        yield coded("function-fails", message)


def _top_level(module: ast.Module) -> set[str] | None:
    """Names that a module's top level binds; None where it may bind others: a star import, a loop, `globals()`."""
    names: set[str] = set()
    for node in module.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {alias.asname or alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            names |= {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
        elif not isinstance(node, ast.Expr):
            return None
    return None if names & {"*", "__getattr__", "globals"} else names


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
