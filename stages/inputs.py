"""inputs: fingerprints of the files that a run takes from outside the chain (weights, pictures), so that a changed file
re-runs what depends on it, wherever it lies.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stages.data.samples import (
    TRACE_SAMPLES,
    ImageSamples,
    Sample,
    calibration_samples,
    trace_samples,
    verification_samples,
)
from stages.io import Stage, StageError, stage_main, write_json


def fingerprint(path: Path) -> dict[str, Any]:
    """Size in bytes and SHA-256 of a file."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"bytes": path.stat().st_size, "sha256": digest}


def fingerprint_weights(path: Path) -> dict[str, Any]:
    """Fingerprint of a weights file.

    Raises:
        StageError: when there is no such file.
    """
    if not path.is_file():
        raise StageError(
            f"model.weights: no such file: {path}; give the path of a .safetensors file, or null for random weights"
        )
    return fingerprint(path)


def fingerprint_samples(samples: Sequence[Sample]) -> dict[str, Any]:
    """Number of samples and one SHA-256 over their names and, where they are files, their content.

    Made samples (digit scenes) are a function of the configuration: their names say it all.
    """
    digest = hashlib.sha256()
    for path in samples.paths if isinstance(samples, ImageSamples) else ():
        digest.update(path.name.encode())
        digest.update(bytes.fromhex(fingerprint(path)["sha256"]))
    return {"samples": len(samples), "sha256": digest.hexdigest()}


def run(stage: Stage) -> dict[str, Any]:
    config, out = stage.config, stage.out()
    weights = config.model.weights
    used = {
        "weights": None if weights is None else {"file": weights} | fingerprint_weights(stage.root / weights),
        "trace": fingerprint_samples(trace_samples(config, TRACE_SAMPLES, stage.root)),
        "calibration": fingerprint_samples(calibration_samples(config, stage.root)),
        "verification": fingerprint_samples(verification_samples(config, stage.root)),
    }
    for name, content in used.items():  # a file each, so that a stage depends on what it reads and no more
        write_json(out / f"{name}.json", content)
    return used


def main() -> None:
    stage_main("inputs", run, timed=False)  # seconds would change the file each time, and so re-run the chain


if __name__ == "__main__":
    main()
