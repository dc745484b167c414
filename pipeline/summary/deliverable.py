"""File that a run delivers: artifacts/<model>-<decoder>.<precision>.onnx, a hard link to the final file (a copy where
links are impossible), with a copy of its external data beside it, which readers of ONNX refuse as a hard link. It is no
out of DVC's and is made anew at the end of each run.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from pathlib import Path

from pipeline.forms import Params, names_of
from pipeline.workspace import PROJECT_VARIABLE
from truehalf.files import write_text

_FINAL = Path("artifacts") / "cast_cleanup" / "model.onnx"
_MADE = Path("reports") / "deliverable.json"  # {files}: so that only what was made here is removed


def deliver(folder: Path, params: Params) -> Path | None:
    """Link the final file and remove links of other configurations; its path relative to the workspace.

    None where there is no final file, and in a workspace that is removed after the run.
    """
    withdraw(folder)
    if not (folder / _FINAL).exists() or Path(os.environ.get(PROJECT_VARIABLE, folder)).resolve() != folder.resolve():
        return None
    made = path_of(params)
    beside = [file for file in (folder / _FINAL).parent.glob(f"{_FINAL.name}?*") if file.is_file()]
    data = {made.with_name(file.name): file for file in beside}  # the model names it
    for place, source in data.items():
        (folder / place).unlink(missing_ok=True)
        shutil.copy2(source, folder / place)
    _link((folder / _FINAL).resolve(), folder / made)
    write_text(folder / _MADE, json.dumps({"files": [str(place) for place in (made, *data)]}, indent=2) + "\n")
    return made


def path_of(params: Params) -> Path:
    """Of the file that a run of this configuration delivers, relative to its workspace."""
    *names, precision = names_of(params)
    stem = re.sub(r"[^\w.-]+", "_", f"{'-'.join(names)}.{precision}")
    return Path("artifacts") / f"{stem}.onnx"


def withdraw(folder: Path) -> None:
    """Remove what an earlier run delivered: this one has failed, or delivers another."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        for name in json.loads((folder / _MADE).read_text())["files"]:
            (folder / name).unlink(missing_ok=True)
        (folder / _MADE).unlink()


def _link(source: Path, place: Path) -> None:
    place.unlink(missing_ok=True)
    try:
        place.hardlink_to(source)
    except OSError:  # another file system, or one without links
        shutil.copy2(source, place)
