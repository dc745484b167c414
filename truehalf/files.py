"""Files and folders of ours: JSON, finished folders put in place, and what is said where the system refuses."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from truehalf.errors import StageError
from truehalf.output_files import NoPlace, write_text

MODEL_FILE = "model.onnx"
_REPLACED = ".replaced"


def explain(error: OSError) -> str:
    """What went wrong with a file, and what to do, in one line."""
    where = f": {error.filename}" if error.filename else ""
    if isinstance(error, NoPlace):
        return f"{error.strerror}{where}; nothing was replaced"
    remedy = "free some space" if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) else "check its permissions"
    return f"{error.strerror or error}{where}; nothing was replaced; {remedy}"


def swap_in(folder: Path, place: Path) -> None:
    """Put a finished folder where an older one may lie. Between the two renames the place is empty, never half full."""
    refuse_no_folder(place)
    replaced = place.with_name(place.name + _REPLACED)
    remove(replaced)
    if place.exists():
        place.rename(replaced)
    folder.rename(place)
    remove(replaced)


def refuse_no_folder(place: Path) -> None:
    if place.is_symlink() or (place.exists() and not place.is_dir()):
        raise NoPlace(place, "a link, or something else that is no folder", "a folder of a stage, or nothing")


def write_json(path: Path, content: Any) -> None:
    """Write JSON whole (truehalf.output_files); NaN and Inf as text, so that every reader copes."""
    write_text(path, json.dumps(plain(content), indent=2, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """Read a JSON file of ours.

    Raises:
        StageError: when it is missing or broken.
    """
    try:
        return json.loads(path.read_text())
    except FileNotFoundError as error:
        raise StageError("file-missing", f"{path} is missing; run the stage that writes it") from error
    except json.JSONDecodeError as error:
        raise StageError(
            "file-unreadable", f"{path} is no valid JSON ({error}); run the stage that writes it again"
        ) from error


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
