"""Seconds that lint takes after a file is loaded, and what it finds.

    python -m benchmarks.lint benchmarks/build/models/dfine640.onnx traced.onnx

The table is the best and the median of five runs, with no other work in between. The file is loaded, sorted and typed
before; a model that carries its types (as ours do) is linted right after loading.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

from truehalf.ir.facts import all_nodes
from truehalf.ir.model_file import load_model
from truehalf.linting import lint
from truehalf.linting.report import counts

_RUNS = 5


def measured(path: Path) -> tuple[int, float, list[float], str]:
    """Nodes, seconds to load, seconds of each run, and the places found by severity."""
    started = time.perf_counter()
    model = load_model(path)
    loading = time.perf_counter() - started
    seconds = []
    for _ in range(_RUNS):
        started = time.perf_counter()
        findings = lint(model)
        seconds.append(time.perf_counter() - started)
    found = ", ".join(f"{number} {severity}" for severity, number in counts(findings)["counts"].items())
    return sum(1 for _ in all_nodes(model)), loading, seconds, found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lint", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("models", nargs="+", type=Path)
    print("| file | nodes | load s | lint s, best | median | found |\n|---|---|---|---|---|---|")
    for path in parser.parse_args().models:
        nodes, loading, seconds, found = measured(path)
        best, median = min(seconds), statistics.median(seconds)
        print(f"| {path.stem} | {nodes} | {loading:.2f} | {best:.3f} | {median:.3f} | {found} |")


if __name__ == "__main__":
    main()
