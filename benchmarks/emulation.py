"""What honest FP16 costs on the CPU: one emulated run beside one run of the FP32 file. Linux only.

    python -m benchmarks.models benchmarks/build/models
    python -m benchmarks.emulation benchmarks/build/models/dfine640.onnx --rounds 5

Each model is converted to FP16 with the .npz beside it as calibration. The subjects take turns, each in a fresh process
that opens its session, runs it once to warm up and then three times; its wall and processor time are the medians of
these three, and a figure is the median over the rounds. Peak memory is that of the whole process.
`--networks` measures how far single operations and whole networks are from torch in half precision
(tests.measuring.half_networks).

Writes benchmarks/results/emulation.json, one entry for each model (others stay), and prints Markdown.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.measuring.converted import to_fp16
from tests.measuring.process import measured

RESULTS = Path(__file__).resolve().parent / "results" / "emulation.json"
SUBJECTS = ("fp32", "emulated", "pessimistic")
_RUNS = 3
_TIMEOUT_S = 600.0


def timed(subject: str, model: Path, sample: Path, target: Path) -> None:
    """In a process of its own: open and run a model, write {load_s, run_s, cpu_s} to `target`."""
    import numpy as np

    from truehalf.emulation.sessions import EmulatedSession
    from truehalf.runtime.ort import Session

    with np.load(sample) as arrays:
        feeds = {name: arrays[name] for name in arrays.files}
    started = time.perf_counter()
    session: Any = Session(model) if subject == "fp32" else EmulatedSession(model, pessimistic=subject == "pessimistic")
    load_s = time.perf_counter() - started
    session.run(feeds)
    walls, cpus = [], []
    for _ in range(_RUNS):
        wall, cpu = time.perf_counter(), time.process_time()
        session.run(feeds)
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    figures = {"load_s": load_s, "run_s": statistics.median(walls), "cpu_s": statistics.median(cpus)}
    target.write_text(json.dumps(figures))


def converted(model: Path, sample: Path, target: Path) -> None:
    """In a process of its own: convert a model to FP16."""
    to_fp16(model, target, calibration=sample)


def compared(model: Path, rounds: int, subjects: Sequence[str]) -> dict[str, Any]:
    """Figures of the subjects: {subject: {load_s, run_s, cpu_s, peak_mb}}, medians over the rounds."""
    sample = model.with_suffix(".npz")
    found: dict[str, list[dict[str, float]]] = {subject: [] for subject in subjects}
    with tempfile.TemporaryDirectory() as folder:
        half, target = Path(folder) / "half.onnx", Path(folder) / "figures.json"
        _child("convert", model, sample, half)
        for _ in range(rounds):
            for subject in subjects:
                peak_mb = _child(subject, model if subject == "fp32" else half, sample, target)
                found[subject].append(json.loads(target.read_text()) | {"peak_mb": peak_mb})
                print(f"{model.stem}: {subject}: {found[subject][-1]}", file=sys.stderr, flush=True)
    return {
        subject: {key: round(statistics.median(row[key] for row in rows), 4) for key in rows[0]}
        for subject, rows in found.items()
    }


def _child(subject: str, model: Path, sample: Path, target: Path) -> float:
    """Its peak memory."""
    command = [sys.executable, "-m", "benchmarks.emulation", str(model), "--child", subject, str(sample), str(target)]
    usage = measured(command, _TIMEOUT_S)
    if usage.error is not None:
        raise SystemExit(f"{model}: {subject}: {usage.error}")
    return usage.peak_mb


def markdown(models: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """One line for each model and subject, with its ratio to FP32."""
    lines = ["| model | subject | run, s | to FP32 | processor, s | to FP32 | load, s | peak, MB | to FP32 |"]
    lines += ["|---" * 9 + "|"]
    for model, rows in models.items():
        base = rows["fp32"]
        for subject, row in rows.items():
            run, cpu, peak = (f"{row[key] / base[key]:.2f}" for key in ("run_s", "cpu_s", "peak_mb"))
            cells = f"{row['run_s']:.3f} | {run} | {row['cpu_s']:.3f} | {cpu} | {row['load_s']:.2f}"
            lines.append(f"| {model} | {subject} | {cells} | {row['peak_mb']:.0f} | {peak} |")
    return "\n".join(lines)


def networks() -> dict[str, dict[str, dict[str, float]]]:
    """Distances of single operations and whole networks to torch, by network and output."""
    from tests.measuring.half_networks import NETWORKS, OPERATIONS
    from tests.measuring.half_networks import compared as compared_to_torch

    with tempfile.TemporaryDirectory() as folder:
        return {name: compared_to_torch(name, Path(folder)) for name in (*OPERATIONS, *NETWORKS)}


def networks_markdown(found: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """One line for each output."""
    lines = ["| network | output | numbers | equal | units: p50 | p99 | max | RMS to torch half | torch half to FP32 |"]
    lines[0] += " emulation to FP32 |"
    lines += ["|---" * 10 + "|"]
    for name, outputs in found.items():
        for output, row in outputs.items():
            units = " | ".join(f"{row[key]:.0f}" for key in ("units_p50", "units_p99", "units_max"))
            errors = " | ".join(f"{row[key]:.2e}" for key in ("rms", "half_rms", "emulated_rms"))
            lines.append(f"| {name} | {output} | {row['numbers']} | {row['equal']:.1%} | {units} | {errors} |")
    return "\n".join(lines)


def main(arguments: Iterable[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.emulation", description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--subjects", nargs="+", choices=SUBJECTS, default=list(SUBJECTS[:2]))
    parser.add_argument("--networks", action="store_true")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    chosen = parser.parse_args(None if arguments is None else list(arguments))
    if chosen.child:
        subject, sample, target = chosen.child
        if subject == "convert":
            converted(chosen.models[0], Path(sample), Path(target))
        else:
            timed(subject, chosen.models[0], Path(sample), Path(target))
        return
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"models": {}, "networks": {}}
    if chosen.networks:
        known["networks"] = networks()
        print(networks_markdown(known["networks"]))
    found = {model.stem: compared(model, chosen.rounds, chosen.subjects) for model in chosen.models}
    if found:
        known["models"] |= found
        print(markdown(found))
    RESULTS.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
