"""The embedded detectors through the whole chain, both decoders in both precisions: the figures of the README.

    python -m benchmarks.embedded

Each configuration runs as `python -m pipeline` in a copy of the project under benchmarks/build, with the settings of
`make run`. Writes benchmarks/results/embedded.json: the machine, the versions, and what the reports of each run say.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.zoo import copy_project
from truehalf.files import write_json
from truehalf.runtime.machine import probe

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "embedded.json"
WORKSPACE = ROOT / "benchmarks" / "build" / "embedded"
_RUNS = [(decoder, precision) for decoder in ("dfine", "rtdetrv2") for precision in ("fp32", "fp16")]
_DECODERS = {"dfine": "D-FINE", "rtdetrv2": "RT-DETRv2"}
_COLUMNS = (
    *("decoder", "precision", "AP50-95", "matched", "box error p99, px", "score error p99", "float nodes in FP16"),
    *("casts added", "attentions fused", "file MB"),
)


def run(decoder: str, precision: str) -> dict[str, Any]:
    """One configuration: its ten figures, and what the stages verify, fp16 and engine say."""
    command = [sys.executable, "-m", "pipeline", f"decoder={decoder}", f"precision={precision}"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(command, cwd=WORKSPACE, env=os.environ | {"PATH": path, "PYTHONPATH": ""}, check=True)
    reports = {
        name: json.loads((WORKSPACE / f"reports/{name}.json").read_text())
        for name in ("metrics", "verify", "engine", "cast_cleanup")
    }
    compiled = reports["engine"].get("compiled") or {}
    return {
        **{"decoder": decoder, "precision": precision},
        **{"metrics": reports["metrics"], "samples": reports["verify"]["samples"]},
        **{"fp16_fraction": reports["cast_cleanup"]["model"]["fp16_fraction"]},
        **{"evaluation": reports["verify"]["evaluation"], "engine": reports["engine"]["status"]},
        **{key: compiled.get(key) for key in ("compiler", "targets", "attention_regions")},
    }


def table(found: Mapping[str, Any]) -> str:
    """Markdown: a row a run, and the machine."""
    lines = [f"| {' | '.join(_COLUMNS)} |", "|---" * len(_COLUMNS) + "|"]
    for row in found["runs"]:
        figures = row["metrics"]
        cells = [
            *(_DECODERS[row["decoder"]], row["precision"].upper()),
            *(f"{figures['ap']:.4f}", f"{figures['matched']:.1%}"),
            *(f"{figures['box_p99']:.2g}", f"{figures['score_p99']:.2g}", f"{row['fp16_fraction']:.1%}"),
            *(str(figures["casts"]), _fused(row), f"{figures['mb']:.2f}"),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    machine = found["machine"]
    return "\n".join([*lines, "", f"{found['samples']} scenes; {_processor(machine)}; ONNX Runtime {machine['onnxruntime']}."])


def _fused(row: Mapping[str, Any]) -> str:
    fused = row["metrics"]["fused"]
    return "–" if fused is None else f"{fused} of {row['attention_regions']}"


def _processor(machine: Mapping[str, Any]) -> str:
    return f"{machine['cores']} cores of {machine['processor']}"


def proven(found: Mapping[str, Any]) -> str:
    """Markdown: what was executed, emulated and compiled for these figures, and on which GPU."""
    machine, half = found["machine"], [row for row in found["runs"] if row["precision"] == "fp16"]
    gpu = ", ".join(each["name"] for each in machine["gpus"] or []) or "none: no engine was executed"
    compilers = sorted({row["compiler"] for row in half if row["engine"] == "compiled"})
    rows = {
        "Executed on a GPU": gpu,
        "Compiled, not executed": f"both detectors, by {' and '.join(compilers)}" if compilers else "nothing",
        "Emulated": f"FP16 rounding at every node, in ONNX Runtime {machine['onnxruntime']}",
        "Not proven": "latency; outputs of an engine; sums that hardware accumulates in FP16",
    }
    return "\n".join(f"- {what}: {which}." for what, which in rows.items())


def main() -> None:
    shutil.rmtree(WORKSPACE, ignore_errors=True)
    copy_project(WORKSPACE)
    runs = [run(*each) for each in _RUNS]
    machine = probe(processor=True)
    short = {"processor": str(machine["processor"]).split(" avx")[0], "cores": os.cpu_count()}
    kept = ("platform", "gpus", "tensorrt", "tensorrt_rtx", "onnxruntime")
    found = {"machine": {**{key: machine[key] for key in kept}, **short}, "samples": runs[0]["samples"], "runs": runs}
    write_json(RESULTS, found)
    print(table(found))


if __name__ == "__main__":
    main()
