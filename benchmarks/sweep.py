"""A sweep of 12 jobs on 2 cores beside the same jobs one after another without sharing; what a job costs beyond its
stages; and what each stage takes, for benchmarks/farm.py.

    python -m benchmarks.sweep                    20 to 25 minutes on a machine that does nothing else
    python -m benchmarks.sweep --samples 8        a trial with few samples; its results go to benchmarks/build

(a) each job in a clone of its own, with a cache of its own, one after another;
(b) the same 12 in one clone: `-m ... hydra/launcher=joblib hydra.launcher.n_jobs=2`;
(c) (b) once more: nothing is left to do but to find that out.

What was executed is counted by processes (tests/measuring/observer), not by what DVC says. A job's overhead is its time
without that of the processes of its stages: workspace, DVC's start, its checks and check-outs, what comes back; in (c),
where no job waits for another one's stage. Stages that look at the machine every time (inputs, probe, track, gate) are
stages: they run without a sweep, too.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import shutil
import statistics
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

from tests.measuring.observed import ALWAYS, Done, Process, distinct, executed, observed

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "sweep.json"
RUNS = ROOT / "benchmarks" / "build" / "sweep_runs"  # runs/ of (b), for benchmarks/compare_many.py
SWEEP = ("decoder=dfine,rtdetrv2", "precision=fp32,fp16", "precision.data_max=128,512,2048")
LAUNCHER = ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2")


def jobs_of_sweep() -> list[list[str]]:
    """The overrides of each job, in Hydra's order."""
    keys = [entry.partition("=") for entry in SWEEP]
    return [
        list(job)
        for job in itertools.product(*([f"{key}={value}" for value in values.split(",")] for key, _, values in keys))
    ]


def clone(folder: Path) -> Path:
    """The files that git knows or would, as a repository of its own, without any cache."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines():
        if (ROOT / name).is_file() and name != "dvc.lock":
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)
    git = ["git", "-c", "user.name=benchmark", "-c", "user.email=benchmark@localhost"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "a clone"]):
        subprocess.run([*git, *command], cwd=folder, check=True)
    return folder


def serial(folder: Path, fixed: Sequence[str]) -> dict[str, Any]:
    """(a): each job in its own clone."""
    jobs, processes = [], []
    for number, overrides in enumerate(jobs_of_sweep()):
        place = clone(folder / f"alone{number}")
        done = well(observed([*overrides, *fixed], place, folder / f"alone{number}.notes"))
        processes += [(tuple(overrides[:2]), process) for process in done.processes]
        jobs.append({"overrides": overrides} | done.facts() | {"executed": sum(executed(done.processes).values())})
        _say("alone", " ".join(overrides), f"{done.wall_s:.1f} s")
        shutil.rmtree(place)
    return {
        "wall_s": round(sum(job["wall_s"] for job in jobs), 1),
        "processor_s": round(sum(job["processor_s"] for job in jobs), 1),
        "load_average_before": jobs[0]["load_average_before"],
        "load_average_after": jobs[-1]["load_average_after"],
        **{"executed": sum(job["executed"] for job in jobs), "jobs": jobs, "stages": _stage_times(processes)},
    }


def _stage_times(processes: Sequence[tuple[tuple[str, ...], Process]]) -> dict[str, dict[str, dict[str, float]]]:
    """Of each decoder and precision, the median seconds of each stage's process."""
    taken: dict[str, dict[str, list[Process]]] = defaultdict(lambda: defaultdict(list))
    for kind, process in processes:
        if process.stage:
            taken[" ".join(kind)][process.stage].append(process)
    return {
        kind: {
            stage: {
                "wall_s": round(statistics.median(each.wall_s for each in found), 3),
                "processor_s": round(statistics.median(each.processor_s for each in found), 3),
            }
            for stage, found in stages.items()
        }
        for kind, stages in taken.items()
    }


def shared(
    place: Path,
    fixed: Sequence[str],
    notes: Path,
    sweep: Sequence[str] = SWEEP,
    launcher: Sequence[str] = LAUNCHER,
) -> dict[str, Any]:
    """(b), and (c) when it is called once more."""
    done = well(observed(["-m", *sweep, *fixed, *launcher], place, notes))
    said = _jobs(place)
    ran = executed(done.processes)
    locks = {(place / "runs" / job["name"] / "dvc.lock") for job in said}
    once = distinct(locks)
    _say("sweep", f"{done.wall_s:.1f} s", json.dumps(ran))
    return done.facts() | {
        "configurations": len(locks),
        "distinct_inputs": dict(once),
        "executed": dict(ran),
        "executed_dvc_says": _dvc_says(place),
        "needless": {stage: ran[stage] - once[stage] for stage in ran if stage not in ALWAYS},
        "overhead": _overhead(done, said),
        "jobs": said,
        "artifacts": _artifacts(locks),
        "executions": [
            {"folder": Path(each.folder).name, "stage": each.stage, "wall_s": round(each.wall_s, 3)}
            for each in done.processes
            if each.stage
        ],
    }


def _jobs(place: Path) -> list[dict[str, Any]]:
    """What became of each job, with the time at which it ended."""
    folder = _last_start(place)
    found = [
        json.loads(path.read_text()) | {"end": round(path.stat().st_mtime, 1)} for path in sorted(folder.glob("*.json"))
    ]
    return sorted(found, key=lambda job: int(job["number"]))


def _last_start(place: Path) -> Path:
    """Results and logs of the sweep that ran last."""
    (sweep,) = place.glob("runs/.sweeps/*")
    return max((path for path in sweep.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))


def _dvc_says(place: Path) -> int:
    folder = _last_start(place)
    return sum(path.read_text().count("Running stage '") for path in folder.glob("*.log"))


def _overhead(done: Done, jobs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Seconds of each job in which no stage's process was there, and those of the sweep before its first and after its
    last. A stage's process is there from its start to its end, as DVC waits for it.
    """
    ran = [job for job in jobs if "same_as" not in job]
    found = []
    for job in ran:
        own = [process for process in done.processes if Path(process.folder).name == job["name"]]
        dvc = next(process for process in own if process.module == "pipeline.cache.shared_repro")
        stages = dvc.waited_s
        found.append(
            {
                "job": job["number"],
                "overhead_s": round(job["seconds"] - stages, 2),
                "before_dvc_s": round(dvc.start - (job["end"] - job["seconds"]), 2),
                "dvc_s": round(dvc.wall_s - stages, 2),
                "dvc_processor_s": round(dvc.processor_s, 2),
                "after_dvc_s": round(job["end"] - dvc.end, 2),
                "stages_s": round(stages, 2),
            }
        )
    first, last = min(job["end"] - job["seconds"] for job in ran), max(job["end"] for job in ran)
    keys = [key for key in found[0] if key != "job"]
    return {
        "median": {key: round(statistics.median(each[key] for each in found), 2) for key in keys},
        "largest_s": max(each["overhead_s"] for each in found),
        "sweep_before_s": round(first - done.start, 2),
        "sweep_after_s": round(done.end - last, 2),
        "jobs": found,
    }


def _artifacts(locks: set[Path]) -> dict[str, dict[str, float]]:
    """Of each stage, the largest that it made in any of the runs: bytes and files that the cache gets."""
    made: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for lock in locks:
        for stage, entry in yaml.safe_load(lock.read_text())["stages"].items():
            outs = [out for out in entry.get("outs", []) if stage not in ALWAYS]
            made[stage].append((sum(out["size"] for out in outs), sum(out.get("nfiles", 1) for out in outs)))
    return {
        stage: {"bytes": max(size for size, _ in found), "files": max(count for _, count in found)}
        for stage, found in made.items()
    }


def well(done: Done) -> Done:
    if done.exit_code:
        raise SystemExit(f"benchmarks.sweep: the pipeline ended with {done.exit_code}")
    return done


def _say(*words: str) -> None:
    print(*words, flush=True)


def machine() -> dict[str, Any]:
    """What was measured on, and with."""
    packages = ("dvc", "mlflow", "hydra-core", "hydra-joblib-launcher", "joblib", "torch", "onnxruntime-gpu")
    return {
        **{"cores": len(os.sched_getaffinity(0)), "machine": platform.machine(), "python": platform.python_version()},
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "versions": {name: version(name) for name in packages},
    }


def table(found: dict[str, Any]) -> str:
    """Of docs/reference/benchmarks.md."""
    a, b, c = found["serial"], found["shared"], found["again"]
    lines = [
        f"`{found['command']}`: {len(b['jobs'])} jobs, {b['configurations']} configurations; "
        f"{found['machine']['cores']} cores.",
        "",
        "| | jobs | wall s | to (a) | processor s | to (a) | stages executed | load average, before and after |",
        "|---|---|---|---|---|---|---|---|",
    ]
    rows = (
        ("(a) one after another, nothing shared", a, a["executed"]),
        ("(b) joblib, 2 at a time, one cache", b, sum(b["executed"].values())),
        ("(c) (b) again", c, sum(c["executed"].values())),
    )
    for name, row, count in rows:
        to = [f"{row[key] / a[key]:.2f}" for key in ("wall_s", "processor_s")]
        load = f"{row['load_average_before']}, {row['load_average_after']}"
        cells = (name, len(row["jobs"]), f"{row['wall_s']:.0f}", to[0], f"{row['processor_s']:.0f}", to[1], count, load)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    first = [alone["wall_s"] for alone, job in zip(a["jobs"], b["jobs"], strict=True) if "same_as" not in job]
    to_first = f"{b['wall_s'] / sum(first):.2f}"
    lines += [
        "",
        f"Without the jobs that repeat another one, (a) takes {sum(first):.0f} s, and (b) {to_first} of that.",
    ]
    lines += ["", "| stage | distinct inputs | executed in (b) | executed in (c) |", "|---|---|---|---|"]
    for stage in b["executed"]:
        inputs = b["distinct_inputs"].get(stage, "runs always")
        lines.append(f"| {stage} | {inputs} | {b['executed'][stage]} | {c['executed'].get(stage, 0)} |")
    over = c["overhead"]
    lines += ["", "| overhead of a job in (c) | seconds, median |", "|---|---|"]
    names = {
        "before_dvc_s": "configuration, worktree",
        "dvc_s": "DVC: start, checks, check-outs",
        "after_dvc_s": "reports brought back, worktree removed",
        "overhead_s": "all of it",
        "dvc_processor_s": "DVC, processor seconds",
        "stages_s": "beside it: inputs, probe, track, gate",
    }
    lines += [f"| {name} | {over['median'][key]:.1f} |" for key, name in names.items()]
    lines.append(f"| all of it, the largest of {len(over['jobs'])} jobs | {over['largest_s']:.1f} |")
    around = f"{over['sweep_before_s']:.1f}, {over['sweep_after_s']:.1f}"
    lines.append(f"| of the sweep: before its first job, after its last | {around} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.sweep", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, help="a trial with so few samples; its results go to benchmarks/build")
    parser.add_argument("--out", type=Path, help="default: benchmarks/results/sweep.json")
    arguments = parser.parse_args()
    few = arguments.samples
    fixed = [] if few is None else [f"model.samples.{each}={few}" for each in ("calibration", "verification")]
    out = arguments.out or (RESULTS if few is None else ROOT / "benchmarks" / "build" / "sweep.json")
    with tempfile.TemporaryDirectory(prefix="truehalf-sweep-") as name:
        folder = Path(name)
        found: dict[str, Any] = {
            "command": f"python -m pipeline -m {' '.join([*SWEEP, *fixed, *LAUNCHER])}",
            "machine": machine(),
            "serial": serial(folder, fixed),
        }
        place = clone(folder / "together")
        found["shared"] = shared(place, fixed, folder / "together.notes")
        shutil.rmtree(RUNS, ignore_errors=True)
        shutil.copytree(place / "runs", RUNS, ignore=shutil.ignore_patterns(".*"))
        found["again"] = shared(place, fixed, folder / "again.notes")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(found, indent=1) + "\n")
    _say(table(found))


if __name__ == "__main__":
    main()
