"""Model files as ONNX Runtime serves them on a GPU: time of a run, and nodes that compute on the CPU all the same.

    python -m benchmarks.models build/models dfine640
    python -m benchmarks.served FP32=dfine640.onnx FP16=dfine640_fp16.onnx ... --shape images=3x640x640

The files take turns, so that all are timed under the same clocks. Inputs are random numbers, and stay on the GPU, as
outputs do. Writes benchmarks/results/served.json.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from truehalf.files import write_json
from truehalf.runtime.machine import probe
from truehalf.runtime.ort.session import CUDA, Session

RESULTS = Path(__file__).resolve().parent / "results" / "served.json"
BATCHES, ROUNDS, WARM_UP, RUNS = (1, 8), 3, 10, 50


def milliseconds(once: Callable[[], Any]) -> float:
    """Median of a round."""
    for _ in range(WARM_UP):
        once()
    times = []
    for _ in range(RUNS):
        started = time.perf_counter()
        once()
        times.append(time.perf_counter() - started)
    return round(1e3 * float(np.median(times)), 2)


def served(files: Mapping[str, Path], name: str, sides: tuple[int, ...]) -> list[dict[str, Any]]:
    """A row for each file and batch size."""
    rows: list[dict[str, Any]] = []
    for batch in BATCHES:
        feeds = {name: np.random.default_rng(batch).random((batch, *sides), dtype=np.float32)}
        timed = {}
        for called, file in files.items():
            seen = Session(file, CUDA, profiled=True)
            seen.run(feeds)
            once = Session(file, CUDA, profiled=False, enable_mem_pattern=True).prepared(feeds)
            timed[called] = once
            rows.append({"file": called, "batch": batch, "cpu_nodes": len(seen.cpu_nodes or []), "ms": []})
        for _ in range(ROUNDS):
            for row in rows[-len(files) :]:
                row["ms"].append(milliseconds(timed[row["file"]]))
    return rows


def table(found: Mapping[str, Any]) -> str:
    """Markdown: a row for each file, a column for each batch size."""
    heads = " | ".join(f"ms, batch {batch}" for batch in BATCHES)
    lines = [f"| file | nodes on the CPU | {heads} |", "|---|---" + "|---" * len(BATCHES) + "|"]
    for called in dict.fromkeys(row["file"] for row in found["rows"]):
        rows = [row for row in found["rows"] if row["file"] == called]
        times = " | ".join(f"{min(row['ms'])} to {max(row['ms'])}" for row in rows)
        lines.append(f"| {called} | {rows[0]['cpu_nodes']} | {times} |")
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
