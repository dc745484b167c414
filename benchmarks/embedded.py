"""The embedded detectors through the whole chain, both decoders in both precisions: the figures of the README.

    python -m benchmarks.embedded

Each configuration runs as `python -m pipeline` in a copy of the project under benchmarks/build, with the settings of
`make run`. Writes benchmarks/results/embedded.json: the machine, the versions, and what the reports of each run say.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import on_gpu
from benchmarks.zoo import copy_project
from truehalf.files import write_json
from truehalf.runtime.machine import probe

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "embedded.json"
WORKSPACE = ROOT / "benchmarks" / "build" / "embedded"
_RUNS = [(decoder, precision) for decoder in ("dfine", "rtdetrv2") for precision in ("fp32", "fp16")]
_COLUMNS = (
    *("decoder", "precision", "AP50-95", "matched", "box error p99, px", "score error p99", "float nodes in FP16"),
    *("casts added", "attentions fused", "file MB"),
)


def run(decoder: str, precision: str) -> dict[str, Any]:
    """The row of one configuration."""
    command = [sys.executable, "-m", "pipeline", f"decoder={decoder}", f"precision={precision}"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(command, cwd=WORKSPACE, env=os.environ | {"PATH": path, "PYTHONPATH": ""}, check=True)
    return {"decoder": decoder, "precision": precision} | row(WORKSPACE / "reports")


def row(reports: Path) -> dict[str, Any]:
    """The ten figures of a run, and what its stages verify, cast_cleanup and engine say."""
    metrics, verify, engine, final = (
        json.loads((reports / f"{name}.json").read_text()) for name in ("metrics", "verify", "engine", "cast_cleanup")
    )
    compiled = engine.get("compiled") or {}
    return {
        **{"metrics": metrics, "samples": verify["samples"], "evaluation": verify["evaluation"]},
        **{"fp16_fraction": final["model"]["fp16_fraction"], "engine": engine["status"]},
        **{key: compiled.get(key) for key in ("compiler", "targets", "attention_regions")},
    }


def table(found: Mapping[str, Any]) -> str:
    """Markdown: a row a run, and the machine."""
    lines = [f"| {' | '.join(_COLUMNS)} |", "|---" * len(_COLUMNS) + "|"]
    for row in found["runs"]:
        figures = row["metrics"]
        cells = [
            *(on_gpu.DECODERS[row["decoder"]], row["precision"].upper()),
            *(f"{figures['ap']:.4f}", f"{figures['matched']:.1%}"),
            *(f"{figures['box_p99']:.2g}", f"{figures['score_p99']:.2g}", f"{row['fp16_fraction']:.1%}"),
            *(str(figures["casts"]), _fused(row), f"{figures['mb']:.2f}"),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    said = f"{found['runs'][0]['samples']} scenes; {_processor(found['machine'])}"
    return "\n".join([*lines, "", f"{said}; ONNX Runtime {found['machine']['onnxruntime']}."])


def _fused(row: Mapping[str, Any]) -> str:
    fused = row["metrics"]["fused"]
    return "–" if fused is None else f"{fused} of {row['attention_regions']}"


def _processor(machine: Mapping[str, Any]) -> str:
    return f"{machine['cores']} cores, {machine['processor']}"


def proven(found: Mapping[str, Any]) -> str:
    """Markdown: on which GPU, by which compiler and in which emulation the embedded detectors ran."""
    half = [row for row in found["runs"] if row["precision"] == "fp16"]
    names = " and ".join(on_gpu.DECODERS[row["decoder"]] for row in half)
    compilers = sorted({row["compiler"] for row in half if row["engine"] == "compiled"})
    figures = half[0]["metrics"]
    accuracy = f"AP50-95 {figures['ap']:.4f}, {figures['ap_drop']:.4f} below FP32; {figures['matched']:.0%} matched"
    scenes = f"{half[0]['samples']} labelled scenes, {_processor(found['machine'])}"
    rows = {
        "Executed on a GPU": on_gpu.proven(json.loads(on_gpu.RESULTS.read_text())),
        "Compiled, not executed": f"{names}, by {' and '.join(compilers)}" if compilers else "nothing",
        "Emulated": f"FP16 rounding, on {scenes}: {accuracy}",
        "Not covered": "sums that a kernel accumulates in FP16; other batch sizes than the report names",
    }
    return "\n".join(f"- {what}: {which}." for what, which in rows.items())


def machine() -> dict[str, Any]:
    """The processor, its cores and the GPU, and versions."""
    found = probe()
    named = re.search(r"^model name\s*: ([^@\n]+)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    name = named[1].strip() if named else "unknown"
    return {key: found[key] for key in ("platform", "gpus", "tensorrt", "tensorrt_rtx", "onnxruntime")} | {
        **{"processor": name, "cores": os.cpu_count()}
    }


def main() -> None:
    copy_project(WORKSPACE)
    runs: list[dict[str, Any]] = []
    for decoder, precision in _RUNS:  # hours on a busy machine: each run is kept
        runs.append(run(decoder, precision))
        write_json(RESULTS, {"machine": machine(), "runs": runs})
    print(table({"machine": machine(), "runs": runs}))


if __name__ == "__main__":
    main()
