"""Memory of iterating over all samples of a run: 100 pictures against 10,000.

    python -m benchmarks.streaming

Pictures of 640 x 480 as JPEG are made in a temporary folder, half of them to calibrate and half to
verify with, preprocessed to 640 x 640. Each count runs in a process of its own, by `inputs` (every file hashed) and by
the samples of calibration and verification. Writes results/streaming.json, the figures of docs/how-to/data.md.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from truehalf.io_spec.spec import IoSpec

COUNTS = (100, 10_000)
SPEC = IoSpec.from_json(
    {
        "inputs": [
            {
                **{"name": "images", "dtype": "float32", "shape": ["batch", 3, 640, 640], "kind": "images"},
                **{"size": [640, 640], "channels": "RGB", "range": [0, 1], "resize": "letterbox", "layout": "NCHW"},
            }
        ],
        "class_names": [],
    }
)


def make(folder: Path, count: int) -> None:
    """Pictures, each unlike the others."""
    from PIL import Image

    for number in range(count):
        blocks = np.random.default_rng(number).integers(0, 256, (12, 16, 3), np.uint8)
        Image.fromarray(blocks).resize((640, 480)).save(folder / f"{number}.jpg", quality=90)


def measure(folder: Path, count: int) -> dict[str, Any]:
    """Iterate over the samples once; this process has done nothing else."""
    from benchmarks.models import _composed
    from truehalf.data.samples import TRACE_SAMPLES, calibration_samples, verification_samples
    from truehalf.models.configuration import validated
    from truehalf.provenance.fingerprints import fingerprint_data

    half = (count - TRACE_SAMPLES) // 2
    counts = [f"data.calibration_samples={half}", f"data.verification_samples={count - TRACE_SAMPLES - half}"]
    config = validated(_composed("data=images", f"data.folder={folder}", *counts))
    before, start = _peak_mb(), time.perf_counter()
    fingerprint_data(config, folder)
    hashed = time.perf_counter()
    seen = 0
    for samples in (calibration_samples(config, folder, SPEC), verification_samples(config, folder, SPEC)):
        seen += sum(1 for _ in samples)
    assert seen == count - TRACE_SAMPLES
    times = {"inputs_seconds": round(hashed - start, 1), "samples_seconds": round(time.perf_counter() - hashed, 1)}
    return {"pictures": count, "samples": seen, "peak_mb_before": before, "peak_mb": _peak_mb()} | times


def _peak_mb() -> float:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.streaming", description="Memory of streaming samples.")
    parser.add_argument("--folder", type=Path, help="measure over the pictures there, and print; used by the script")
    parser.add_argument("--count", type=int)
    arguments = parser.parse_args()
    if arguments.folder:
        print(json.dumps(measure(arguments.folder, arguments.count)))
        return
    found = []
    for count in COUNTS:
        with tempfile.TemporaryDirectory() as folder:
            make(Path(folder), count)
            command = [sys.executable, "-m", "benchmarks.streaming", "--folder", folder, "--count", str(count)]
            found.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
        print(found[-1], flush=True)
    (Path(__file__).parent / "results" / "streaming.json").write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
