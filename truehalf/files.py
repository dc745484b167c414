"""JSON files, folders moved into place when they are finished, and messages for errors of the system."""

from __future__ import annotations

import errno
import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from truehalf.errors import StageError
from truehalf.output_files import NoPlace, write_text

MODEL_FILE = "model.onnx"
_REPLACED = ".replaced"
_REMEDIES = dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "free some space") | {
    errno.ENAMETOOLONG: "use a shorter name",
    errno.ENOTDIR: "a part of the path is a file, not a folder",
    errno.EISDIR: "it is a folder; name a file",
}


def explain(error: OSError) -> str:
    """An error of the system in one line: what failed, on which file, and what to do."""
    where = f": {error.filename}" if error.filename else ""
    if isinstance(error, NoPlace):
        return f"{error.strerror}{where}; nothing was replaced"
    remedy = _REMEDIES.get(error.errno or 0, "check its permissions")
    return f"{error.strerror or error}{where}; nothing was replaced; {remedy}"


def swap_in(folder: Path, place: Path) -> None:
    """Put a finished folder where an older one may lie. Between the two renames the place is empty, never half full."""
    if place.is_symlink() or (place.exists() and not place.is_dir()):
        raise NoPlace(place, "a link, or something else that is no folder", "a folder of a stage, or nothing")
    replaced = place.with_name(place.name + _REPLACED)
    remove(replaced)
    if place.exists():
        place.rename(replaced)
    folder.rename(place)
    remove(replaced)


def write_json(path: Path, content: Any) -> None:
    """Write JSON whole (truehalf.output_files); NaN and Inf as text, so that every reader copes."""
    write_text(path, json.dumps(plain(content), indent=2, allow_nan=False) + "\n")


def read_json(path: Path, named: str | None = None, expected: str = "JSON that truehalf wrote") -> Any:
    """Read a JSON file.

    Args:
        named: what messages call it; None: by its path.
        expected: what it is to hold, in messages.

    Raises:
        StageError: file-missing; file-unreadable where it is broken.
        OSError: where the system does not let it be read.
    """
    return _parsed(path, named, expected, json.loads, (ValueError, RecursionError))


def read_yaml(path: Path, named: str | None = None, expected: str = "a mapping in JSON or YAML") -> Any:
    """Read a YAML or JSON file; arguments as those of `read_json`.

    Raises:
        StageError: file-missing; file-unreadable where it is broken, or the system does not let it be read.
    """
    import yaml

    def parse(text: str) -> Any:
        try:  # the same in C, ten times faster, where PyYAML has it
            return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        except yaml.YAMLError:
            return yaml.safe_load(text)  # whose errors say where

    return _parsed(path, named, expected, parse, (OSError, ValueError, yaml.YAMLError))


def _parsed(
    path: Path, named: str | None, expected: str, parse: Callable[[str], Any], broken: tuple[type[Exception], ...]
) -> Any:
    try:
        return parse(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise StageError("file-missing", f"{named or path}: no such file; expected {expected}") from error
    except broken as error:
        problem = error.strerror if isinstance(error, OSError) else " ".join(str(error).split())
        raise StageError("file-unreadable", f"{named or path}: expected {expected}, but {problem}") from error


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, as `sha256sum` prints it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def plain(value: Any) -> Any:
    """For JSON: numpy scalars and arrays as Python's; non-finite floats as "nan", "inf", "-inf"."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):  # numpy
        return plain(value.tolist())
    if isinstance(value, float) and not -float("inf") < value < float("inf"):
        return str(value)
    return value


def remove(path: Path) -> None:
    """Remove a file, a link or a folder with all that is in it; nothing happens where there is none."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
