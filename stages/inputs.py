"""inputs: fingerprints of the files that a run takes from outside the chain (weights), so that a changed file re-runs
what depends on it, wherever it lies.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

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


def run(stage: Stage) -> dict[str, Any]:
    weights = stage.config.model.weights
    return {"weights": None if weights is None else {"file": weights} | fingerprint(stage.root / weights)}


def main() -> None:
    run_stage("inputs", run, timed=False)  # seconds would change the file each time, and so re-run the chain


if __name__ == "__main__":
    main()
