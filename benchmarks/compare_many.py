"""`python -m pipeline.compare` with 200 finished runs: from files, and from MLflow.

    python -m benchmarks.sweep             leaves the real runs that are copied
    python -m benchmarks.compare_many

Runs of the sweep are copied under other names with other thresholds and other errors, costs and sizes (the same seed:
the same numbers), and logged in an MLflow database of SQLite by what the chain logs runs with.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

from benchmarks.sweep import ROOT, RUNS, machine
from tests.measuring.observed import processor_s

RESULTS = ROOT / "benchmarks" / "results" / "compare_many.json"
RUN_COUNT = 200
LIMIT_S = 10.0
_VARIED = ("ap50_95_drop", "box_error_px_p99", "score_error_p99")


def fill(project: Path, runs: Path, count: int) -> list[Path]:
    """A project with so many finished runs under runs/, made of the real ones."""
    originals = sorted(path.parent for path in runs.glob("*/params.yaml"))
    if not originals:
        raise SystemExit(f"{runs} holds no run; run `python -m benchmarks.sweep` first, or name a folder of runs")
    drawn = random.Random(0)
    (project / "dvc.yaml").write_text("stages: {}\n")
    made = []
    for number in range(count):
        original = originals[number % len(originals)]
        place = project / "runs" / f"{original.name[:-8]}{number:08d}"
        shutil.copytree(original, place)
        _vary(place, drawn)
        made.append(place)
    return made


def _vary(place: Path, drawn: random.Random) -> None:
    """Another threshold, other errors, another size, other casts."""
    params = yaml.safe_load((place / "params.yaml").read_text())
    params["precision"] |= {
        "data_max": round(drawn.uniform(16, 4096), 1),
        "safety_factor": drawn.choice([1.5, 2.0, 4.0]),
    }
    params["precision"]["op_block_list"] = drawn.sample(["Softmax", "MatMul", "LayerNormalization", "Conv"], 2)
    (place / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))
    reports = {name: place / "reports" / f"{name}.json" for name in ("verify", "fp16", "cast_cleanup")}
    said = {name: json.loads(path.read_text()) for name, path in reports.items()}
    said["verify"] |= {key: drawn.lognormvariate(-4, 1) for key in _VARIED}
    said["fp16"]["fp16_arithmetic"] = drawn.uniform(0.5, 1)
    said["fp16"]["costs"]["placed"]["cast_bytes"] = drawn.randrange(10**7)
    said["cast_cleanup"]["model"]["size_mb"] = drawn.uniform(5, 12)
    for name, path in reports.items():
        path.write_text(json.dumps(said[name], indent=2))


def log(project: Path, runs: list[Path]) -> float:
    """Log the runs in the project's mlflow.db; seconds for one."""
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    from pipeline.track import log as log_run
    from pipeline.tracking.record import of_workspace

    started = time.perf_counter()
    for run in runs:
        outcome = log_run(of_workspace(run), project)
        assert outcome["status"] == "logged", outcome
    return (time.perf_counter() - started) / len(runs)


def seconds(project: Path, *arguments: str) -> tuple[float, float]:
    """Wall time and processor seconds of `python -m pipeline.compare`."""
    environment = {key: value for key, value in os.environ.items() if key != "MLFLOW_TRACKING_URI"}
    environment["PYTHONPATH"] = str(ROOT)
    started, used = time.perf_counter(), processor_s()
    command = [sys.executable, "-m", "pipeline.compare", *arguments]
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"compare: {RUN_COUNT} runs" in done.stdout, done.stdout[-500:]
    return round(time.perf_counter() - started, 2), round(processor_s() - used, 2)


def table(found: dict[str, Any]) -> str:
    """Of docs/reference/benchmarks.md."""
    lines = [
        "| command | runs | wall s, least and most of three | processor s | load average |",
        "|---|---|---|---|---|",
    ]
    for command, taken in found["seconds"].items():
        walls, used = zip(*taken, strict=True)
        shown = f"{min(walls):.1f}, {max(walls):.1f} | {min(used):.1f}"
        lines.append(f"| `{command}` | {found['runs']} | {shown} | {found['load_average']} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compare_many",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--runs", type=Path, default=RUNS, help="the runs to copy (default: those of benchmarks.sweep)")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="truehalf-compare-") as name:
        project = Path(name)
        logged_s = log(project, fill(project, arguments.runs, RUN_COUNT))
        commands = {
            "python -m pipeline.compare": (),
            "python -m pipeline.compare --experiment truehalf": ("--experiment", "truehalf"),
        }
        found = {
            "runs": RUN_COUNT,
            "limit_s": LIMIT_S,
            "seconds": {
                command: [seconds(project, *options) for _ in range(3)] for command, options in commands.items()
            },
            "seconds_to_log_a_run": round(logged_s, 2),
            "load_average": round(os.getloadavg()[0], 2),
            "machine": machine(),
        }
    arguments.out.write_text(json.dumps(found, indent=1) + "\n")
    print(table(found))


if __name__ == "__main__":
    main()
