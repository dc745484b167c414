"""What a job costs beside its stages when nothing is left to do: in a sweep, and by itself.

    python -m benchmarks.overhead                 three minutes on a machine that does nothing else

A small sweep runs once, with few samples, to fill the cache; then again, two jobs and one job at a time; then one of
its jobs as `python -m pipeline`, in the project. What remains of each job's time without the processes of its stages
(inputs, probe, track and gate, which look every time), each from its start to its end, is overhead: for a job of a
sweep from the moment at which its launcher has handed it over, by itself from the command's start.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.sweep import clone, machine, shared, well
from tests.measuring.observed import observed

RESULTS = Path(__file__).resolve().parent / "results" / "overhead.json"
SWEEP = ("precision=fp32,fp16", "precision.data_max=128,512")
FEW = ("model.samples.calibration=4", "model.samples.verification=4", "verify.profile=false", "verify.pictures=0")
ALONE = ("precision=fp16", "precision.data_max=512")
TIMES = 3


def launcher(jobs: int) -> tuple[str, ...]:
    return ("hydra/launcher=joblib", f"hydra.launcher.n_jobs={jobs}")


def by_itself(place: Path, notes: Path) -> dict[str, float]:
    """One `python -m pipeline` for which nothing is left to do."""
    done = well(observed([*ALONE, *FEW], place, notes))
    stages = next(process for process in done.processes if process.module == "pipeline.cache.shared_repro").waited_s
    return {"overhead_s": round(done.wall_s - stages, 2), "stages_s": round(stages, 2)}


def table(found: Mapping[str, Any]) -> str:
    """Of docs/reference/benchmarks.md."""
    keys = ("before_dvc_s", "dvc_s", "after_dvc_s", "overhead_s", "stages_s")
    lines = [
        "| a job with nothing left to do, seconds | before DVC | DVC | after DVC | all of it | its stages, beside |",
        "|---|---|---|---|---|---|",
    ]
    for name, row in found["in a sweep"].items():
        lines.append(f"| of a sweep, {name} | {' | '.join(f'{row[key]:.1f}' for key in keys)} |")
    alone = found["by itself"]
    lines.append(f"| by itself, `python -m pipeline` | | | | {alone['overhead_s']:.1f} | {alone['stages_s']:.1f} |")
    return "\n".join(lines)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="truehalf-overhead-") as name:
        folder = Path(name)
        place = clone(folder / "project")
        shared(place, FEW, folder / "first.notes", SWEEP, launcher(2))
        swept = {
            said: shared(place, FEW, folder / f"{jobs}.notes", SWEEP, launcher(jobs))["overhead"]["median"]
            for said, jobs in (("two jobs at a time", 2), ("one at a time", 1))
        }
        by_itself(place, folder / "checkout.notes")  # brings the artifacts into the project
        alone = [by_itself(place, folder / f"alone{number}.notes") for number in range(TIMES)]
    median = {key: round(statistics.median(each[key] for each in alone), 2) for key in alone[0]}
    found = {"machine": machine(), "in a sweep": swept, "by itself": median}
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    print(table(found))


if __name__ == "__main__":
    main()
