"""A farm on paper: 1,000 variants on 64 workers, by simulation of the job graph with measured times.

    python -m benchmarks.sweep && python -m benchmarks.tracking      measure what it is fed with
    python -m benchmarks.farm                                        seconds
    python -m benchmarks.readme                                      fills in docs/how-to/farm.md

What is simulated: jobs in order, each on the first free worker; stage after stage, each behind its lock, as in
pipeline/cache/shared_repro.py: the first job with the same input executes it, the others wait and then check its outs
out of the cache beside each other; one file server for the cache (bytes and operations, first come, first served); one
tracking server. What is measured: seconds of stages and of DVC, sizes of artifacts, seconds of a run logged. What is
assumed: ASSUMED below.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import sweep, tracking
from tests.measuring.farm import CHAIN, OF_MODEL, Farm, Job, simulate
from tests.measuring.observed import ALWAYS

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "farm.json"
PAGE = ROOT / "docs" / "how-to" / "farm.md"
VARIANTS, WORKERS = 1000, 64
KIND = "decoder=dfine precision=fp16"
ASSUMED = {
    "models": 20,  # with 50 precision settings each
    "server_mb_s": 1000.0,  # of the file server, about 10 Gbit/s
    "worker_mb_s": 110.0,  # of a worker's link, about 1 Gbit/s
    "operations_s": 5000.0,  # metadata operations of the file server
    "operations_a_stage": 40.0,  # besides two for each file: locks, run-cache, look-ups
}


# --- what was measured ------------------------------------------------------------------------------------------------


def measured_farm(swept: Mapping[str, Any], workers: int) -> Farm:
    """A farm on local disks, as the sweep of 12 had; the time to log a run is in that of its stage."""
    spent = swept["again"]["overhead"]["median"]
    stage_s = _DVC_STAGES * spent["dvc_s"] / len(CHAIN)
    return Farm(
        workers=workers,
        workspace_s=spent["before_dvc_s"] + spent["after_dvc_s"],
        dvc_start_s=(1 - _DVC_STAGES) * spent["dvc_s"],
        dvc_stage_s=stage_s,
        made={stage: (each["bytes"], each["files"]) for stage, each in swept["shared"]["artifacts"].items()},
        tracked_s=0.0,
        tracking_slots=0,
    )


_DVC_STAGES = 0.5  # share of DVC's time that is of single stages; the rest is its start and the graph


def median_seconds(executions: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    taken: dict[str, list[float]] = defaultdict(list)
    for each in executions:
        taken[each["stage"]].append(each["wall_s"])
    return {stage: statistics.median(found) for stage, found in taken.items()}


def swept_jobs(swept: Mapping[str, Any], seconds_of: Callable[[Mapping[str, Any]], Mapping[str, float]]) -> list[Job]:
    """The jobs of the sweep that ran, in order; those that were the same as another cost nothing."""
    jobs = []
    for job in swept["shared"]["jobs"]:
        if "same_as" in job:
            continue
        decoder = job["overrides"][0]
        inputs = {stage: None if stage in ALWAYS else decoder if stage in OF_MODEL else job["name"] for stage in CHAIN}
        jobs.append(Job(inputs, seconds_of(job)))
    return jobs


def validated(swept: Mapping[str, Any]) -> dict[str, Any]:
    """The sweep of 12 on 2 workers, predicted and measured.

    From the times of stages that ran alone, and from those of the sweep itself, in which two jobs share two cores.
    """
    alone, here = swept["serial"]["stages"], swept["shared"]["executions"]
    of_sweep = median_seconds(here)

    def as_alone(job: Mapping[str, Any]) -> dict[str, float]:
        return {stage: each["wall_s"] for stage, each in alone[" ".join(job["overrides"][:2])].items()}

    def as_in_sweep(job: Mapping[str, Any]) -> dict[str, float]:
        own = {each["stage"]: each["wall_s"] for each in here if each["folder"] == job["name"]}
        return of_sweep | own

    around = swept["again"]["overhead"]["sweep_before_s"] + swept["again"]["overhead"]["sweep_after_s"]
    measured_s = swept["shared"]["wall_s"]
    found: dict[str, Any] = {
        **{"measured_s": measured_s, "load_average_before": swept["shared"]["load_average_before"]},
        **{"jobs": len(swept["shared"]["jobs"]), "configurations": swept["shared"]["configurations"]},
    }
    for name, seconds_of in (("stages alone", as_alone), ("stages in the sweep", as_in_sweep)):
        outcome = simulate(swept_jobs(swept, seconds_of), measured_farm(swept, 2))
        predicted = outcome.makespan_s + around
        found[name] = {"predicted_s": round(predicted, 1), "error": round(predicted / measured_s - 1, 3)}
    return found


def large_farm(swept: Mapping[str, Any], tracked: Mapping[str, Any], database: str) -> Farm:
    """64 workers, one file server, one tracking server."""
    rows = tracked["databases"][database]
    best = max(row["runs_a_second"] for row in rows.values())
    slots = max(1, round(best * rows["1"]["seconds_a_run"]))
    assumed: dict[str, Any] = {key: value for key, value in ASSUMED.items() if key != "models"}
    alone = measured_farm(swept, WORKERS)
    return replace(alone, tracked_s=slots / best, tracking_slots=slots, **assumed)


def variants(swept: Mapping[str, Any], count: int, models: int, interleaved: bool) -> list[Job]:
    """So many models with as many precision settings each; all settings of a model, or all models first."""
    alone = {stage: each["wall_s"] for stage, each in swept["serial"]["stages"][KIND].items()}
    # What a clone does once (an empty MLflow database) is not done by each job. `track` found its runs logged:
    # what logging takes is the farm's.
    seconds = alone | {
        stage: seconds for stage, seconds in median_seconds(swept["again"]["executions"]).items() if stage in ALWAYS
    }
    pairs = [(number * models // count, number) for number in range(count)]
    if interleaved:
        pairs = [(number % models, number) for number in range(count)]
    return [
        Job(
            {
                stage: None if stage in ALWAYS else str(model) if stage in OF_MODEL else f"{model}.{number}"
                for stage in CHAIN
            },
            seconds,
        )
        for model, number in pairs
    ]


def scenarios(swept: Mapping[str, Any], tracked: Mapping[str, Any]) -> dict[str, Any]:
    """The farm, and what happens to it when one thing is another."""
    database = "PostgreSQL" if "PostgreSQL" in tracked["databases"] else "SQLite"
    farm, models = large_farm(swept, tracked, database), int(ASSUMED["models"])
    listed, turned = (variants(swept, VARIANTS, models, interleaved) for interleaved in (False, True))
    cases = {
        "as they are listed, model by model": (listed, farm),
        "models in turn": (turned, farm),
        "tracking 2 times slower": (listed, replace(farm, tracked_s=2 * farm.tracked_s)),
        "tracking 10 times slower": (listed, replace(farm, tracked_s=10 * farm.tracked_s)),
        "tracking on SQLite": (listed, large_farm(swept, tracked, "SQLite")),
        "runs kept, logged later": (listed, replace(farm, tracking_slots=0)),
        "link of the cache 10 times slower": (listed, _slower(farm)),
        "that link, and a cache on each worker": (listed, replace(_slower(farm), local_cache=True)),
        "models of 1 GB": (listed, _larger(farm)),
        "models of 1 GB, and a cache on each worker": (listed, replace(_larger(farm), local_cache=True)),
        "models of 1 GB, read one after the other": (listed, replace(_larger(farm), lock_on_hit=True)),
        "one model": (variants(swept, VARIANTS, 1, False), farm),
        "1,000 models": (variants(swept, VARIANTS, VARIANTS, False), farm),
        "16 workers": (listed, replace(farm, workers=16)),
        "256 workers": (listed, replace(farm, workers=256)),
    }
    return {name: _facts(jobs, on) for name, (jobs, on) in cases.items()}


def _slower(farm: Farm) -> Farm:
    return replace(farm, server_mb_s=farm.server_mb_s / 10, worker_mb_s=farm.worker_mb_s / 10)


def _larger(farm: Farm) -> Farm:
    """Artifacts of a model of 1 GB instead of one of a few MB; what takes longer to compute is not in it."""
    factor = 1e9 / max(1.0, farm.made["slim"][0])
    return replace(farm, made={stage: (size * factor, files) for stage, (size, files) in farm.made.items()})


def _facts(jobs: Sequence[Job], farm: Farm) -> dict[str, Any]:
    found = simulate(jobs, farm)
    total = farm.workers * found.makespan_s
    return {
        "workers": farm.workers,
        "makespan_min": round(found.makespan_s / 60, 1),
        "utilisation": round(found.spent["stages"] / total, 3),
        "shares": {what: round(seconds / total, 4) for what, seconds in found.spent.items()},
        "busy": {name: round(share, 4) for name, share in found.busy.items()},
        "executed": dict(found.executed),
    }


# --- what is written of it --------------------------------------------------------------------------------------------

_SHARES = ("stages", "workspace and DVC", "waiting for another job's stage", "file server", "tracking server")


def table(found: Mapping[str, Any]) -> str:
    """Of docs/how-to/farm.md."""
    names = [*_SHARES, "idle at the end"]
    lines = [
        f"| | minutes | {' | '.join(names)} | tracking server is busy |",
        f"|---|{'---|' * (len(names) + 2)}",
    ]
    for name, row in found["scenarios"].items():
        shares = [f"{100 * row['shares'].get(each, 0):.1f} %" for each in names]
        busy = f"{100 * row['busy']['tracking server']:.0f} %"
        lines.append(f"| {name} | {row['makespan_min']:.1f} | {' | '.join(shares)} | {busy} |")
    return "\n".join(lines)


def validation_table(found: Mapping[str, Any]) -> str:
    """Of docs/how-to/farm.md."""
    told = found["validation"]
    about = f"{told['jobs']} jobs ({told['configurations']} configurations), 2 workers"
    lines = [f"| {about} | s | error |", "|---|---|---|", f"| measured | {told['measured_s']:.0f} | |"]
    for name in ("stages alone", "stages in the sweep"):
        lines.append(f"| simulated, {name} | {told[name]['predicted_s']:.0f} | {100 * told[name]['error']:+.0f} % |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.farm", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sweep", type=Path, default=sweep.RESULTS)
    parser.add_argument("--tracking", type=Path, default=tracking.RESULTS)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    swept, tracked = (json.loads(path.read_text()) for path in (arguments.sweep, arguments.tracking))
    found = {
        **{"variants": VARIANTS, "workers": WORKERS, "kind": KIND, "assumed": ASSUMED},
        "validation": validated(swept),
        "scenarios": scenarios(swept, tracked),
    }
    arguments.out.write_text(json.dumps(found, indent=1) + "\n")
    print(validation_table(found), table(found), sep="\n\n")


if __name__ == "__main__":
    main()
