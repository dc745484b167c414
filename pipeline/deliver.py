"""File that a run delivers: artifacts/<model>-<decoder>.<precision>.onnx.

It is a hard link to the final file (a copy where links are impossible), with a copy of its external data beside it,
which readers of ONNX refuse as a hard link. It is no out of DVC's and is made anew at the end of each run.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from pathlib import Path

from pipeline.run_record import FINAL, Run, read_json_or_none
from pipeline.workspace import PROJECT_VARIABLE
from truehalf.files import write_json

_RECORD = Path("reports", "deliverable.json")  # {files}: only what was made here is removed


def deliver(run: Run) -> Path | None:
    """Link the final file and remove the links of earlier runs; return its path relative to the workspace.

    None for a run that failed, where there is no final file, and in the folder of a sweep's job. A run that crashed
    in `trace` made no file and leaves an earlier one.
    """
    folder = run.folder
    if run.crash is None or run.crash.stage != "trace":
        withdraw(folder)
    is_project = Path(os.environ.get(PROJECT_VARIABLE, folder)).resolve() == folder.resolve()
    if run.has_failed or not is_project or not (folder / FINAL).exists():
        return None
    place = path_of(run)
    beside = [file for file in (folder / FINAL).parent.glob(f"{FINAL.name}?*") if file.is_file()]
    data = {place.with_name(file.name): file for file in beside}  # the model names its data by this name
    for target, source in data.items():
        shutil.copy2(source, folder / target)
    (folder / place).unlink(missing_ok=True)
    try:
        (folder / place).hardlink_to((folder / FINAL).resolve())
    except OSError:  # another file system, or one without links
        shutil.copy2(folder / FINAL, folder / place)
    write_json(folder / _RECORD, {"files": [str(file) for file in (place, *data)]})
    return place


def path_of(run: Run) -> Path:
    """Path of the file that a run of this configuration delivers, relative to its workspace."""
    *names, precision = run.names
    stem = re.sub(r"[^\w.-]+", "_", f"{'-'.join(names)}.{precision}")
    return Path("artifacts") / f"{stem}.onnx"


def withdraw(folder: Path) -> None:
    """Remove the files that an earlier run delivered."""
    record = read_json_or_none(folder / _RECORD) or {}
    for name in record.get("files", []):
        with contextlib.suppress(OSError):
            (folder / name).unlink(missing_ok=True)
    (folder / _RECORD).unlink(missing_ok=True)
