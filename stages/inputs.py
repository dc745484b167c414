"""inputs: fingerprints of the files that a run takes from outside the chain (weights, pictures), so that a changed file
re-runs what depends on it, wherever it lies.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from conf.schema import DataSource
from stages.data.images import list_images, take
from stages.data.samples import TRACE_SAMPLES
from stages.io import Stage, StageError, run_stage


def fingerprint(path: Path) -> dict[str, Any]:
    """Size in bytes and SHA-256 of a file.

    Raises:
        StageError: when there is no such file.
    """
    if not path.is_file():
        raise StageError(
            f"model.weights: no such file: {path}; give the path of a .safetensors file, or null for random weights"
        )
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"bytes": path.stat().st_size, "sha256": digest}


def fingerprint_pictures(folder: Path, seed: int, count: int) -> dict[str, Any]:
    """Number of pictures used and one SHA-256 over their names and contents.

    Raises:
        StageError: when the folder is missing, or holds fewer than `count`.
    """
    digest = hashlib.sha256()
    for path in take(list_images(folder, seed), 0, count, folder, "verification"):
        digest.update(path.relative_to(folder).as_posix().encode())
        digest.update(bytes.fromhex(fingerprint(path)["sha256"]))
    return {"used": count, "sha256": digest.hexdigest()}


def run(stage: Stage) -> dict[str, Any]:
    weights, data = stage.config.model.weights, stage.config.data
    report: dict[str, Any] = {"weights": None, "pictures": None}
    if weights is not None:
        report["weights"] = {"file": weights} | fingerprint(stage.root / weights)
    if data.source is DataSource.images and data.folder is not None:
        count = TRACE_SAMPLES + data.calibration_samples + data.verification_samples
        report["pictures"] = fingerprint_pictures(stage.root / data.folder, data.seed, count)
    return report


def main() -> None:
    run_stage("inputs", run, timed=False)  # seconds would change the file each time, and so re-run the chain


if __name__ == "__main__":
    main()
