"""engine: a strongly typed TensorRT engine from the final ONNX file, or the complete plan to build one elsewhere.

The graph's dtypes are the engine's precision, so a file whose dtypes contradict the declared precision is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from conf.schema import PrecisionName, WhenUnavailable
from stages.graph.facts import model_facts
from stages.io import Stage, StageError, defaults, read_json, stage_main
from stages.onnx_files import load_model
from stages.trt.build import BuildError, build, precision_fault, unavailable_reason
from stages.trt.plan import OPTIONS, make_plan, write_plan

ENGINE_FILE = "model.engine"


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


def build_engine(
    model_path: Path | str,
    out_dir: Path | str,
    *,
    profiles: Sequence[Mapping[str, Any]],
    declared: str,
    probe: dict[str, Any],
    plan_names: tuple[str, str] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Build an engine into `out_dir`/model.engine where the machine can, and write `out_dir`/plan.json in any case.

    Args:
        model_path: the final ONNX file.
        profiles: optimization profiles: [{input: {"min": shape, "opt": shape, "max": shape}}].
        declared: "fp16" or "fp32".
        probe: facts of the machine (stages.probe.probe()).
        plan_names: how the plan calls the ONNX file and the engine; default: the paths given.
        options: keys of conf/engine/tensorrt.yaml that shall differ from it.

    Returns:
        A report with `status` "built", or "planned" and the machine's `reason`; `plan` holds the build plan.

    Raises:
        StageError: when the file contradicts `declared`, or TensorRT refuses it.
    """
    model_path, out_dir = Path(model_path), Path(out_dir)
    check_precision(model_path, declared)
    names = plan_names or (str(model_path), str(out_dir / ENGINE_FILE))
    wanted = defaults("engine/tensorrt") | options
    plan = make_plan(model_path, names=names, options=wanted, profiles=profiles, declared=declared)
    write_plan(plan, out_dir)
    reason = unavailable_reason(probe)
    if reason:
        return {"status": "planned", "reason": reason, "plan": plan}
    try:
        facts = build(plan | {"onnx": str(model_path)}, out_dir)
    except BuildError as error:
        raise StageError(str(error)) from error
    fault = precision_fault(facts, declared)
    if fault:
        return {"status": "failed", "reason": fault, "plan": plan} | facts
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
        declared="fp16" if declared is PrecisionName.fp16 else "fp32",
        probe=probe,
        plan_names=("artifacts/cast_cleanup/model.onnx", f"artifacts/engine/{ENGINE_FILE}"),
        **{name: getattr(options, name) for name in (*OPTIONS, "plugins")},
    )
    if report["status"] == "planned" and options.when_unavailable is WhenUnavailable.fail:
        return report | {"status": "failed", "reason": f"engine.when_unavailable=fail, and {report['reason']}"}
    return report


def main() -> None:
    stage_main("engine", run)


if __name__ == "__main__":
    main()
