"""Every source of models through the whole chain, each at its smallest real architecture.

    make zoo                                     all of it, in half an hour to an hour; fills in docs/reference/zoo.md
    python -m benchmarks.zoo detr yolos          these rows anew
    python -m benchmarks.zoo --exporter dynamo --out dynamo.json

Each model runs as `python -m pipeline` in one workspace of its own (a copy of this one, under benchmarks/build), on
crops of photographs that come with scikit-learn and scikit-image; the embedded detectors on their digit scenes.
Nothing is downloaded, so all other weights are random and seeded: their detections mean nothing and are not verified,
and what is left to look at is whether the outputs stay finite, and how far they are from FP32.

Memory is that of the whole tree of processes (proportional set size), ten times a second.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.zoo_models import ENTRIES, FOLDER, PICTURES, TRACED, Entry, write_configurations

OPSETS = {"torchscript": 17, "dynamo": 18}
ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "zoo.json"
WORKSPACE = ROOT / "benchmarks" / "build" / "zoo"
OPTIONAL = ROOT / ".venv-lightly" / "bin" / "python"  # the environment with torchvision
_SAMPLES = ("data.calibration_samples=4", "data.verification_samples=4")
_STAGES = ("trace", "slim", "fp16", "cast_cleanup", "verify")
_LIMIT_S = 1800
_EVERY_S = 0.1


def workspace() -> Path:
    """A copy of the project, with pictures and configurations."""
    copy_project(WORKSPACE)
    write_configurations(WORKSPACE / FOLDER)
    write_pictures(WORKSPACE / PICTURES)
    return WORKSPACE


def copy_project(folder: Path) -> None:
    """The files that git knows or would, in a folder that is made anew; DVC's cache is its own."""
    if folder.exists():
        shutil.rmtree(folder)
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines():
        if (ROOT / name).is_file():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)


def write_pictures(folder: Path) -> None:
    """Four crops each of six photographs."""
    from PIL import Image
    from skimage import data
    from sklearn.datasets import load_sample_images

    folder.mkdir(parents=True)
    named = [getattr(data, name)() for name in ("astronaut", "chelsea", "coffee", "rocket")]
    photographs = [*named, *load_sample_images().images]
    for number, pixels in enumerate(photographs):
        photograph = Image.fromarray(pixels)
        width, height = (side // 4 for side in photograph.size)
        for x, y in ((0, 0), (1, 0), (0, 1), (1, 1)):
            crop = photograph.crop((x * width, y * height, (x + 3) * width, (y + 3) * height))
            crop.save(folder / f"{number}{x}{y}.png")


def overrides_of(entry: Entry, exporter: str) -> list[str]:
    """Of the configuration, on the command line."""
    return [*entry.overrides, *_SAMPLES, f"trace.exporter={exporter}", f"trace.opset={OPSETS[exporter]}"]


def run(entry: Entry, folder: Path, exporter: str) -> dict[str, Any]:
    """A row: what each stage said, and what the run took."""
    python = OPTIONAL if entry.optional else Path(sys.executable)
    shutil.rmtree(folder / "reports", ignore_errors=True)
    overrides = overrides_of(entry, exporter)
    environment = os.environ | {"PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}", "HF_HUB_OFFLINE": "1"}
    started = time.perf_counter()
    with (folder / f"{entry.name}.log").open("w") as log:
        process = subprocess.Popen(
            [str(python), "-m", "pipeline", *overrides],
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        memory = _Memory(process.pid)
        try:
            code: int | None = process.wait(timeout=_LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGTERM)  # DVC and its stage, too, which would go on in the next row's place
            process.wait()
            code = None
        peak = memory.stop()
    found: dict[str, Any] = {
        **{"name": entry.name, "source": entry.source, "architecture": entry.architecture, "trained": entry.trained},
        **{"command": f"python -m pipeline {' '.join(overrides)}", "exporter": exporter, "exit_code": code},
        **{"seconds": round(time.perf_counter() - started, 1), "peak_mb": round(peak)},
    }
    return found | _said(folder, (folder / f"{entry.name}.log").read_text())


def _keep_for_onnx(entry: Entry, folder: Path) -> None:
    """The traced file of the embedded D-FINE is the row `onnx`."""
    traced = folder / "artifacts" / "trace" / "model.onnx"
    if entry.name == TRACED and traced.exists():
        shutil.copy2(traced, folder / FOLDER / f"{entry.name}.onnx")


def _said(folder: Path, log: str) -> dict[str, Any]:
    """From the reports of the stages that ran."""
    reports = {}
    for stage in _STAGES:
        path = folder / "reports" / f"{stage}.json"
        if path.exists():
            reports[stage] = json.loads(path.read_text())
    failed = folder / "reports" / "error.json"
    error = json.loads(failed.read_text()) if failed.exists() else None
    if error and error["stage"] in _STAGES:  # DVC has put back what this stage and later ones once made
        reports = {stage: reports[stage] for stage in _STAGES[: _STAGES.index(error["stage"])] if stage in reports}
    missing = next((stage for stage in _STAGES if stage not in reports), None)
    found: dict[str, Any] = {"stopped_at": missing}
    if missing is not None:
        found["error"] = error or log.strip().splitlines()[-1:]
    if "trace" in reports:
        found |= {"parameters": reports["trace"]["parameters"], "trace": reports["trace"]["parity"]}
    if "slim" in reports:
        slimmed = reports["slim"]["model"]
        found |= {"nodes": slimmed["nodes"], "casts_before": slimmed["casts"], "slim_mb": slimmed["size_mb"]}
    if "cast_cleanup" in reports:
        final = reports["cast_cleanup"]["model"]
        found |= {key: final[key] for key in ("casts", "fp16_fraction", "size_mb")}
    if "verify" in reports:
        verify = reports["verify"]
        found["verify"] = {key: verify[key] for key in ("verdict", "nan", "inf", "max_abs_error", "matched_fraction")}
    return found


class _Memory:
    """The largest proportional set size of a process and all that it started."""

    def __init__(self, pid: int) -> None:
        self._pid, self._peak, self._done = pid, 0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> float:
        """In MB (2^20 bytes)."""
        self._done.set()
        self._thread.join()
        return self._peak / 2**20

    def _watch(self) -> None:
        while not self._done.wait(_EVERY_S):
            self._peak = max(self._peak, sum(_sizes(self._pid)))


def _sizes(pid: int) -> Iterator[int]:
    import psutil

    try:
        first = psutil.Process(pid)
        processes = [first, *first.children(recursive=True)]
    except psutil.Error:
        return
    for process in processes:
        try:
            yield process.memory_full_info().pss
        except psutil.Error:  # it has ended
            continue


def table(found: Sequence[dict[str, Any]]) -> str:
    """Of docs/reference/zoo.md."""
    lines = [
        "| source | architecture | traces | slims | converts | verifies | seconds | nodes | casts, before and after "
        "| float nodes in FP16 | peak memory |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in found:
        seconds, memory = f"{row['seconds']:.0f}", f"{row['peak_mb'] / 1024:.1f} GiB"
        share = f"{100 * row['fp16_fraction']:.1f} %" if "fp16_fraction" in row else ""
        casts = f"{row['casts_before']}, {row['casts']}" if "casts" in row else ""
        counts = (str(row.get("nodes", "")), casts, share)
        cells = (row["source"], row["architecture"], *_verdicts(row), seconds, *counts, memory)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _verdicts(row: dict[str, Any]) -> list[str]:
    """Traces, slims, converts, verifies."""
    order = ["trace", "slim", "cast_cleanup", "verify"]
    stopped = row["stopped_at"]
    ran = len(order) if stopped is None else order.index("cast_cleanup" if stopped == "fp16" else stopped)
    cells = ["yes" if number < ran else "no" if number == ran else "" for number in range(len(order))]
    if "trace" in row and row["trace"]["status"] != "verified":
        cells[0] = f"yes, {row['trace']['status']}"
    if "verify" in row:
        verify = row["verify"]
        lost = verify["nan"] + verify["inf"]
        cells[3] = verify["verdict"]
        if lost and not row["trained"]:
            cells[3] += f"; {lost} NaN or Inf"
        elif not row["trained"] and cells[3] == "not verified":
            cells[3] = "finite"
    return cells


def _write(path: Path, row: dict[str, Any], order: Sequence[str]) -> None:
    """Put a row among those that were measured earlier."""
    earlier = json.loads(path.read_text()) if path.exists() else []
    kept = [each for each in earlier if each["name"] != row["name"] and each["name"] in order]
    rows = sorted([*kept, row], key=lambda each: order.index(each["name"]))
    temporary = path.with_name(f"{path.name}.partial")
    temporary.write_text(json.dumps(rows, indent=1) + "\n")
    temporary.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.zoo", description="Every source of models through the whole chain."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: all; {', '.join(e.name for e in ENTRIES)}")
    parser.add_argument("--exporter", choices=("torchscript", "dynamo"), default="torchscript")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    known = {entry.name: entry for entry in ENTRIES}
    if unknown := [name for name in arguments.names if name not in known]:
        parser.error(f"unknown: {', '.join(unknown)}; known are {', '.join(known)}")
    chosen = [known[name] for name in arguments.names] or ENTRIES
    if not OPTIONAL.exists() and any(entry.optional for entry in chosen):
        parser.error(f"{OPTIONAL.parent.parent.name} is needed, with torchvision: make test-lightly makes it")
    if known["onnx"] in chosen and known[TRACED] not in chosen:
        chosen = [known[TRACED], *chosen]
    folder = workspace()
    for entry in chosen:
        row = run(entry, folder, arguments.exporter)
        _keep_for_onnx(entry, folder)
        print(json.dumps(row), flush=True)
        _write(arguments.out, row, list(known))


if __name__ == "__main__":
    main()
