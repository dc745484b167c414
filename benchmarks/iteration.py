"""What a change of precision.op_block_list costs, on the embedded detector, beside another commit of this project.

    git clone . ../before; git -C ../before checkout COMMIT; make -C ../before setup run
    make run
    python -m benchmarks.iteration ../before

Each round runs a list in the other clone and in this one, one after the other: the speed of a rented machine changes by
half within minutes, so seconds are told beside those of the other commit. Then this clone runs the lists with
verify=smoke. Both have run before, so what does not depend on the precision is there; what a list made before is not
taken from DVC's cache. Python keeps its bytecode, as it does unless PYTHONDONTWRITEBYTECODE is set.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "iteration.json"
LISTS = ("Softmax", "Conv,Div", "MatMul", "Add,Sub", "LayerNormalization", "Mul,Erf", "Sigmoid", "Conv,MatMul")


def machine() -> dict[str, Any]:
    """What was measured on, and with."""
    packages = ("dvc", "mlflow", "hydra-core", "torch", "onnxruntime-gpu")
    return {
        **{"cores": len(os.sched_getaffinity(0)), "machine": platform.machine(), "python": platform.python_version()},
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "versions": {name: version(name) for name in packages},
    }


def seconds_of(clone: Path, operators: str, *more: str) -> float:
    """Of one run whose lists differ from those before.

    Raises:
        CalledProcessError: when it fails.
    """
    shutil.rmtree(clone / ".dvc" / "cache" / "runs", ignore_errors=True)
    command = [
        str(clone / ".venv" / "bin" / "python"),
        "-m",
        "pipeline",
        f"precision.op_block_list=[{operators}]",
        *more,
    ]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    started = time.perf_counter()
    subprocess.run(command, cwd=clone, env=environment, check=True, capture_output=True)
    return round(time.perf_counter() - started, 1)


def measured(before: Path, rounds: int) -> dict[str, Any]:
    """Seconds of each run by kind, their medians, and these as shares of those of the other commit."""
    rows: dict[str, list[float]] = {"before": [], "now": [], "smoke": []}
    for operators in LISTS[:rounds]:
        rows["before"].append(seconds_of(before, operators))
        rows["now"].append(seconds_of(ROOT, operators))
        print(operators, rows["before"][-1], rows["now"][-1], flush=True)
    for operators in LISTS[:rounds]:  # each unlike the one before it, which the last of above is to the first
        rows["smoke"].append(seconds_of(ROOT, operators, "verify=smoke"))
        print("smoke", operators, rows["smoke"][-1], flush=True)
    median = {kind: statistics.median(times) for kind, times in rows.items()}
    return {
        "machine": machine(),
        "commits": {"before": _commit(before), "now": _commit(ROOT)},
        "seconds": rows,
        "median_seconds": median,
        "of_before": {kind: round(median[kind] / median["before"], 3) for kind in ("now", "smoke")},
    }


def _commit(clone: Path) -> str:
    found = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], cwd=clone, check=True, capture_output=True)
    return found.stdout.decode().strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, metavar="CLONE", help="of the other commit, set up, and run once")
    parser.add_argument("--rounds", type=int, default=len(LISTS), choices=range(2, len(LISTS) + 1))
    arguments = parser.parse_args()
    found = measured(arguments.before.resolve(), arguments.rounds)
    RESULTS.write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found["median_seconds"]), json.dumps(found["of_before"]))


if __name__ == "__main__":
    main()
