"""The files of finished runs on a GPU, beside what their emulation has said of it without one.

    python -m benchmarks.on_gpu WORKSPACE...

A workspace is a folder in which `python -m pipeline` has run, here or on a machine without a GPU; nothing in it is
changed. Its FP16 file is verified by ONNX Runtime's CUDA provider as stage verify does, and its FP32 and FP16 files
are served by ONNX Runtime on CUDA and become engines of TensorRT for RTX, where that runs on this GPU: outputs are
compared with the FP32 reference, and runs are timed. Writes benchmarks/results/on_gpu.json.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from truehalf.config.engine import Backend
from truehalf.config.params import read_params
from truehalf.config.schema import Config
from truehalf.config.validate import validate
from truehalf.config.verification import Evaluation
from truehalf.engines.build import Order, build_engine, evidence_of
from truehalf.errors import told
from truehalf.files import read_json, write_json
from truehalf.io_spec.in_file import read_spec
from truehalf.io_spec.profiles import completed
from truehalf.ir.model_forms import ModelFile
from truehalf.runtime.machine import probe
from truehalf.verification.chain.chain import MEASURED_STAGES, verify
from truehalf.verification.chain.configured import read_frozen

RESULTS = Path(__file__).resolve().parent / "results" / "on_gpu.json"
DECODERS = {"dfine": "D-FINE", "rtdetrv2": "RT-DETRv2"}
_COMPUTED = {
    Evaluation.emulated_fp16: "emulated",
    Evaluation.emulated_fp16_pessimistic: "emulated, sums in FP16",
    Evaluation.cuda: "on the GPU",
}
_FILES = {"fp32": "slim", "fp16": "cast_cleanup"}
_VERIFIED = (
    *("verdict", "reasons", "not_verified", "evaluation", "provider", "samples", "reference", "matched", "missed"),
    *("label_flips", "box_error_px_p99", "box_error_px_max", "score_error_p99", "score_error_max", "ap50_95_fp32"),
    *("ap50_95", "nan", "inf", "max_abs_error"),
)
_BUILT = (
    *("status", "reason", "compiled", "provider", "gpu", "build_seconds", "engine_mb"),
    *("latency", "precision", "not_verified", "warnings"),
)
_PARITY = ("state", "reason", "samples", "matched_fraction", "box_error_px_p99", "score_error_p99", "ap50_95")


def verified(root: Path, config: Config, evaluation: Evaluation) -> dict[str, Any]:
    """What stage verify finds with that evaluation."""
    artifacts = root / "artifacts"
    spec = read_spec(artifacts / "trace" / "io_spec.json")
    judge = read_frozen(artifacts / "reference", config, root, spec)
    files = {name: ModelFile(artifacts / name / "model.onnx") for name in MEASURED_STAGES}
    judge = replace(judge, options=replace(judge.options, evaluation=evaluation))
    with tempfile.TemporaryDirectory() as out:
        report: Any = verify(judge, files, Path(out)).to_json()
    found = {**report, **report["metrics"]}
    return {key: found.get(key) for key in _VERIFIED}


def built(root: Path, config: Config, declared: str, backend: Backend) -> dict[str, Any]:
    """The engine's report."""
    file = ModelFile(root / "artifacts" / _FILES[declared] / "model.onnx")
    spec = read_spec(root / "artifacts" / "trace" / "io_spec.json")
    profiles = completed(config.engine.profiles, spec.inputs)
    options = replace(config.engine, backend=backend, timing_cache=None)
    with tempfile.TemporaryDirectory() as out:
        order = Order(declared=declared, profiles=profiles, evidence=lambda: evidence_of(config, root))
        report: Mapping[str, Any] = build_engine(file, out, order, options).to_json()
    parity = {key: report["parity"][key] for key in _PARITY if key in report.get("parity", {})}
    return {**{key: report[key] for key in _BUILT if key in report}, "parity": parity}


def tried(what: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """What it gives, or the error that it ends with."""
    try:
        return what(*arguments)
    except Exception as error:  # one that fails leaves the others to be run
        return {"error": told(error)}


def table(found: Mapping[str, Any]) -> str:
    """Markdown: a row for each workspace and evaluation, and the machine."""
    lines = [
        "| decoder | FP16 computed | matched | box error p99, px | score error p99 | AP50-95 | of FP32 |",
        "|---" * 7 + "|",
    ]
    for name, rows in found["workspaces"].items():
        for evaluation in Evaluation:
            row = rows[evaluation.value]
            cells = [
                *(DECODERS[name], _COMPUTED[evaluation], f"{row['matched']} of {row['reference']}"),
                *(f"{row['box_error_px_p99']:.3f}", f"{row['score_error_p99']:.4f}"),
                *(f"{row['ap50_95']:.4f}", f"{row['ap50_95_fp32']:.4f}"),
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", f"{_gpu(found)}, ONNX Runtime {found['machine']['onnxruntime']}."])


def proven(found: Mapping[str, Any]) -> str:
    """What ran on which GPU, in a line."""
    half = {DECODERS[name]: rows[Evaluation.cuda.value] for name, rows in found["workspaces"].items()}
    matched = ", ".join(
        f"{name} {row['matched']} of {row['reference']} matched, AP50-95 {row['ap50_95']:.4f}"
        for name, row in half.items()
    )
    page = "docs/explanation/fp16-emulation.md#beside-a-gpu"
    return f"the FP16 files, by ONNX Runtime on an {_gpu(found)} ([figures]({page})): {matched}. No TensorRT engine was"


def _gpu(found: Mapping[str, Any]) -> str:
    return str(found["machine"]["gpus"][0]["name"])


def main() -> None:
    """Run all, and write what was found after each workspace, beside what this machine has found of others."""
    machine = probe()
    kept = read_json(RESULTS) if RESULTS.exists() else {}
    rows: dict[str, Any] = kept["workspaces"] if kept.get("machine") == machine else {}
    for root in map(Path, sys.argv[1:]):
        config = validate(read_params(root))
        found = {each.value: tried(verified, root, config, each) for each in Evaluation}
        for declared in _FILES:
            served = tried(built, root, config, declared, Backend.tensorrt_rtx)
            if served.get("status") not in ("planned", "compiled"):  # nothing was run
                found[f"{Backend.tensorrt_rtx.value} {declared}"] = served
        rows[root.name] = found
        write_json(RESULTS, {"machine": machine, "workspaces": rows})


if __name__ == "__main__":
    main()
