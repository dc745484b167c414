"""Model files as ONNX Runtime serves them on a GPU: time of a run.

    python -m benchmarks.models build/models dfine640
    python -m benchmarks.served FP32=dfine640.onnx FP16=dfine640_fp16.onnx ... --shape images=3x640x640

The files take turns. Inputs are random numbers, and stay on the GPU, as outputs do. Writes
benchmarks/results/served.json.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from truehalf.files import write_json
from truehalf.runtime.machine import probe
from truehalf.runtime.ort.session import CUDA, Session

RESULTS = Path(__file__).resolve().parent / "results" / "served.json"
BATCHES, ROUNDS, WARM_UP, RUNS = (1, 8), 2, 20, 60


def milliseconds(file: Path, feeds: Mapping[str, np.ndarray]) -> float:
    """Median of a round."""
    session = Session(file, CUDA, profiled=False, enable_mem_pattern=True)
    once = session.prepared(feeds)
    for _ in range(WARM_UP):
        once()
    times = []
    for _ in range(RUNS):
        started = time.perf_counter()
        once()
        times.append(time.perf_counter() - started)
    session.close()
    return round(1e3 * float(np.median(times)), 2)


def served(files: Mapping[str, Path], name: str, sides: tuple[int, ...]) -> list[dict[str, Any]]:
    """A row for each file and batch size, with the median of each round."""
    rows: list[dict[str, Any]] = [{"file": called, "batch": size, "ms": []} for called in files for size in BATCHES]
    for _ in range(ROUNDS):
        for row in sorted(rows, key=lambda row: row["batch"]):
            feeds = {name: np.random.default_rng(1).random((row["batch"], *sides), dtype=np.float32)}
            row["ms"].append(milliseconds(files[row["file"]], feeds))
    return rows


def table(found: Mapping[str, Any]) -> str:
    """Markdown: a row for each file, a column for each batch size."""
    heads = " | ".join(f"ms, batch {size}" for size in BATCHES)
    lines = [f"| file | {heads} |", "|---" * (1 + len(BATCHES)) + "|"]
    for called in dict.fromkeys(row["file"] for row in found["rows"]):
        rows = [row for row in found["rows"] if row["file"] == called]
        times = " | ".join(f"{min(row['ms']):.1f} to {max(row['ms']):.1f}" for row in rows)
        lines.append(f"| {called} | {times} |")
    machine = found["machine"]
    return "\n".join([*lines, "", f"{machine['gpus'][0]['name']}, ONNX Runtime {machine['onnxruntime']}."])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", help="NAME=FILE")
    parser.add_argument("--shape", required=True, help="INPUT=SIDES, without the batch: images=3x640x640")
    options = parser.parse_args()
    name, sides = options.shape.split("=")
    files = {called: Path(file) for called, file in (each.split("=", 1) for each in options.files)}
    rows = served(files, name, tuple(map(int, sides.split("x"))))
    write_json(RESULTS, {"machine": probe(), "rows": rows})


if __name__ == "__main__":
    main()
