"""engine: a strongly typed TensorRT engine from the final ONNX file, or the complete plan to build one elsewhere.

The graph's dtypes are the engine's precision, so a file whose dtypes contradict the declared precision is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from conf.schema import PrecisionName, WhenUnavailable
from stages.graph.facts import model_facts
from stages.io import Stage, StageError, read_json, stage_main, write_json
from stages.onnx_files import load_model
from stages.trt.build import Shapes, build, build_plan, unavailable_reason

ENGINE_FILE = "model.engine"
PLAN_FILE = "plan.json"


def check_precision(model_path: Path, declared: str) -> None:
    """Refuse a file that would not give the declared engine.

    Raises:
        StageError: when "fp16" is declared and no node is FP16, or "fp32" and some node is.
    """
    facts = model_facts(load_model(model_path))
    fp16 = facts["fp16_nodes"]
    if declared == "fp16" and not fp16:
        raise StageError(
            f"{model_path}: precision=fp16 is declared and none of its {facts['float_nodes']} float nodes is FP16; "
            "run `dvc repro cast_cleanup`, or declare precision=fp32"
        )
    if declared == "fp32" and fp16:
        raise StageError(
            f"{model_path}: precision=fp32 is declared and {fp16} of its {facts['float_nodes']} float nodes are FP16; "
            "run `dvc repro cast_cleanup`, or declare precision=fp16"
        )


def sha256(model_path: Path) -> str:
    """Of the ONNX file; with external data, of the file and its data, one after the other."""
    digest = hashlib.sha256()
    for file in (model_path, model_path.with_name(f"{model_path.name}.data")):
        if file.exists():
            with file.open("rb") as opened:
                while block := opened.read(1 << 20):
                    digest.update(block)
    return digest.hexdigest()


def build_engine(
    model_path: Path | str,
    out_dir: Path | str,
    *,
    profiles: Sequence[Shapes],
    workspace_gb: float,
    declared: str,
    probe: dict[str, Any],
    plan_names: tuple[str, str] | None = None,
) -> dict[str, Any]:
    """Build an engine into `out_dir`/model.engine where the machine can, and write `out_dir`/plan.json in any case.

    Args:
        model_path: the final ONNX file.
        profiles: optimization profiles: [{input: {"min": shape, "opt": shape, "max": shape}}].
        workspace_gb: limit of the workspace memory pool in GiB.
        declared: "fp16" or "fp32".
        probe: facts of the machine (stages.probe.probe()).
        plan_names: how the plan calls the ONNX file and the engine; default: the paths given.

    Returns:
        A report with `status` "built", or "planned" and the machine's `reason`; `plan` holds the build plan.

    Raises:
        StageError: when the file contradicts `declared`, or TensorRT refuses it.
    """
    model_path, out_dir = Path(model_path), Path(out_dir)
    check_precision(model_path, declared)
    names = plan_names or (str(model_path), str(out_dir / ENGINE_FILE))
    plan = build_plan(*names, profiles, workspace_gb) | {"onnx_sha256": sha256(model_path)}
    write_json(out_dir / PLAN_FILE, plan)
    reason = unavailable_reason(probe)
    if reason:
        return {"status": "planned", "reason": reason, "plan": plan}
    facts = build(model_path, out_dir / ENGINE_FILE, profiles, workspace_gb)
    if declared == "fp16" and not facts["half_layers"]:
        return {
            "status": "failed",
            "reason": "fp16 was declared and no layer of the engine is Half",
            "plan": plan,
        } | facts
    return {"status": "built", "not_verified": ["the engine's outputs"], "plan": plan} | facts


def run(stage: Stage) -> dict[str, Any]:
    options = stage.config.engine
    verdict = read_json(stage.artifact("verify", "verdict.json"))["verdict"]
    probe = read_json(stage.root / "reports" / "probe.json")
    profiles = [
        {name: {"min": shapes.min, "opt": shapes.opt, "max": shapes.max} for name, shapes in profile.items()}
        for profile in options.profiles
    ]
    model_path, declared = stage.artifact("cast_cleanup"), stage.config.precision.dtype
    if verdict == "failed" and not options.build_unverified:
        stage.out().joinpath("REFUSED").write_text("no engine: the model failed verify\n")
        reason = "the model failed verify; engine.build_unverified=true builds it all the same"
        return {"status": "refused", "reason": reason}
    report = build_engine(
        model_path,
        stage.out(),
        profiles=profiles,
        workspace_gb=options.memory_pools_gb.get("workspace", 4.0),
        declared="fp16" if declared is PrecisionName.fp16 else "fp32",
        probe=probe,
        plan_names=("artifacts/cast_cleanup/model.onnx", f"artifacts/engine/{ENGINE_FILE}"),
    )
    if report["status"] == "planned" and options.when_unavailable is WhenUnavailable.fail:
        return report | {"status": "failed", "reason": f"engine.when_unavailable=fail, and {report['reason']}"}
    return report


def main() -> None:
    stage_main("engine", run)


if __name__ == "__main__":
    main()
