"""Seconds and memory that the sensitivity of all nodes takes (truehalf.verification.pinning.sensitivity), beside an
FP32 session.

    python -m benchmarks.sensitivity benchmarks/build/models/nano_dfine.onnx

<name>.npz beside a model holds the sample (benchmarks.models makes both). Each subject is a process of its own:

    fp32           ONNX Runtime, CPU provider, the FP32 file, two runs
    sensitivity    the switchboard of that file, all modules and nodes on top of nothing in FP32

"peak MB" is the largest resident memory of a process, Python and its imports included; "imports MB" is that of a
process which only imports both; "cpu seconds" are those of all cores. Error: the largest difference of the sorted
outputs, as a DETR sorts its queries.
Writes benchmarks/results/sensitivity.json and prints the table.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.measuring.process import Usage, measured

RESULTS = Path(__file__).resolve().parent / "results" / "sensitivity.json"
TIME_LIMIT_S = 1800.0
_COLUMNS = (
    "model", "nodes", "modules", "runs", "seconds", "cpu seconds", "seconds to open", "ms a run", "fp32 ms a run",
    "peak MB", "fp32 peak MB", "ratio", "imports MB",
)  # fmt: skip


def row_of(model: Path) -> dict[str, Any]:
    """The figures of one model, by the names of the columns."""
    usages: dict[str, Usage] = {}
    found: dict[str, Any] = {}
    for name in ("imports", "fp32", "sensitivity"):
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "found.json"
            command = [sys.executable, "-m", "benchmarks.sensitivity", str(model), "--subject", name, "--out", str(out)]
            usages[name] = measured(command, TIME_LIMIT_S, cwd=RESULTS.parents[2])
            if usages[name].error:
                raise SystemExit(f"{model.name}, {name}: {usages[name].error}")
            found[name] = json.loads(out.read_text())
    fp32, whole = usages["fp32"].peak_mb, usages["sensitivity"].peak_mb
    return {
        "model": model.stem,
        **found["sensitivity"],
        "fp32 ms a run": found["fp32"]["ms a run"],
        "wall seconds of the process": usages["sensitivity"].wall_s,
        "peak MB": whole,
        "fp32 peak MB": fp32,
        "ratio": whole / fp32,
        "imports MB": usages["imports"].peak_mb,
        "cores": len(os.sched_getaffinity(0)),
    }


# --- the subjects -----------------------------------------------------------------------------------------------------


def subject(name: str, model: Path) -> dict[str, Any]:
    """What one process does and finds."""
    import onnxruntime  # noqa: F401  # part of all three

    from truehalf.runtime.ort.session import Session
    from truehalf.verification.pinning.sensitivity import sensitivity
    from truehalf.verification.pinning.switchboard import Switchboard

    with np.load(model.with_suffix(".npz")) as arrays:
        feeds = {key: arrays[key] for key in arrays.files}
    if name == "imports":
        return {}
    if name == "fp32":
        session = Session(model)
        session.run(feeds)
        started = time.perf_counter()
        session.run(feeds)
        return {"ms a run": 1e3 * (time.perf_counter() - started)}
    started, used = time.perf_counter(), time.process_time()
    board = Switchboard(model)
    opened = time.perf_counter()
    exact = board.run(feeds, board.nodes)

    def error(outputs: Mapping[str, np.ndarray]) -> float:
        pairs = [(np.sort(value.ravel()), np.sort(exact[key].ravel())) for key, value in outputs.items()]
        return float(max(np.abs(a - b).max() for a, b in pairs))

    found = sensitivity(board, feeds, [], error, runs=100_000)
    ended = time.perf_counter()
    assert found.complete
    assert sum("node" in row for row in found.rows) == len(board.nodes)
    return {
        "nodes": len(board.nodes),
        "modules": sum("group" in row for row in found.rows),
        "runs": found.runs,
        "seconds": ended - started,
        "cpu seconds": time.process_time() - used,
        "seconds to open": opened - started,
        "ms a run": 1e3 * (ended - opened) / (found.runs + 1),
        "error in FP16": found.base_error,
        "worst": found.worst(10),
    }


# --- the table --------------------------------------------------------------------------------------------------------


def table(found: Sequence[Mapping[str, Any]]) -> str:
    """Markdown."""
    lines = [f"| {' | '.join(_COLUMNS)} |", "|---" * len(_COLUMNS) + "|"]
    for row in found:
        cells = [row[column] for column in _COLUMNS]
        lines.append(f"| {' | '.join(f'{cell:.2f}' if isinstance(cell, float) else str(cell) for cell in cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sensitivity", description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="+", type=Path, help="FP32 ONNX files, each with an npz beside it")
    parser.add_argument("--subject", choices=("imports", "fp32", "sensitivity"), help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    if arguments.subject:
        found: Any = subject(arguments.subject, arguments.models[0])
    else:
        found = [row_of(model.resolve()) for model in arguments.models]
        print(table(found))
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
