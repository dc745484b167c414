"""Engine of a file compiled by TensorRT for RTX: NVIDIA's parser, builder and kernels, nothing executed.

What the builder's log says of each layer is read into facts: types, fused attention, ONNX nodes whose type the engine
changed, casts that are left. They are facts of this compiler: TensorRT on a GPU chooses kernels by their time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import onnx_ir as ir

from truehalf.codes import coded
from truehalf.engines.compiling.ahead import taken
from truehalf.engines.compiling.fused import attentions
from truehalf.engines.compiling.gates import gates, half_arithmetic
from truehalf.engines.engine_report import CompilerFacts, EnginePlan, EngineReport
from truehalf.engines.precision import judged_precision, precision_facts
from truehalf.errors import StageError
from truehalf.ir.facts import all_nodes
from truehalf.ir.model_forms import ModelFile
from truehalf.runtime.tensorrt.apart import build_apart
from truehalf.runtime.tensorrt.proof import changed_nodes, computes, precision_unknown
from truehalf.runtime.tensorrt.versions import RTX, BuildError, BuildPlan, EngineFacts
from truehalf.verification.findings import FAILED, NOT_VERIFIED

NOT_RUN = "compiled, nothing was executed"
_NO_REFUSAL = ("file-unwritable", "unknown-choice", "would-overwrite", "wrong-plan")  # of the file that is compiled
_CAST = re.compile(r"__myl_(?:Cast)+(?:_|$)")  # kernels that cast and do nothing else


def compile_engine(plan: EnginePlan, file: ModelFile, out_dir: Path) -> tuple[EngineFacts, CompilerFacts]:
    """Compile a plan's model, and write the engine beside the plan as <name>.rtx.engine.

    Returns:
        facts of the engine, and what the compiler made of the model.

    Raises:
        BuildError: when the compiler refuses an option or the model.
        RuntimeError: when the library ends otherwise.
    """
    content, folder = compiled_plan(plan, file.path), ahead_folder(plan)
    facts = (taken(content, folder, out_dir) if folder else None) or build_apart(content, out_dir, module=RTX)
    engine = str(Path(plan["engine"]).with_name(content["engine"]))
    return facts | {"engine": engine, "provider": RTX}, compiler_facts(facts, file.typed, plan)


def compiled_plan(plan: EnginePlan, model_path: Path) -> BuildPlan:
    """The plan as this compiler carries it out."""
    name = f"{Path(plan['engine']).stem}.rtx.engine"
    return cast("BuildPlan", plan | {"onnx": str(model_path), "engine": name, "builder": _options(plan)})


def ahead_folder(plan: EnginePlan) -> Path | None:
    """Where an engine is kept that is compiled before it is asked for."""
    cache = plan["builder"]["timing_cache"]
    return Path(cache) / "ahead" if cache else None


def _options(plan: EnginePlan) -> dict[str, object]:
    """The builder's, without those that concern the machine that builds, and without those that this compiler has for
    no engine that is built without a GPU, where the engine is for another product.
    """
    left_out = {"timing_cache": None, "editable_timing_cache": False, "hardware_compatibility": "none"}
    if plan["backend"] != RTX:
        left_out |= dict.fromkeys(("version_compatible", "refit", "strip_weights"), False)
    return dict(plan["builder"]) | left_out


def compiler_facts(facts: EngineFacts, model: ir.Model, plan: EnginePlan) -> CompilerFacts:
    """What the compiler made of a model, by the layers that it logged; see CompilerFacts."""
    layers = facts["layer_table"]
    named = {name for layer in layers for name in layer["onnx_nodes"]}
    fused, not_fused = attentions(model, layers)
    graph, lost = plan["graph"], changed_nodes(facts, plan["graph"])
    shares = half_arithmetic(model, graph, lost or [], plan.get("profiles", []))
    known = facts["layers"] is not None
    constants = [dtype for layer in layers for dtype in layer["constants"]]
    return {
        "compiler": f"TensorRT for RTX {facts['tensorrt']}",
        "targets": plan.get("target", {}).get("compute_capability", []),
        "computing_layers": sum(map(computes, layers)) if known else None,
        "fused_attention": len(fused) if known else None,
        "attention_regions": len(fused) + len(not_fused),
        "attention_not_fused": not_fused if known else [],
        "computed_in_fp32": lost or [],
        "file_half_arithmetic": shares and shares[0],
        "half_arithmetic": shares[1] if shares is not None and lost is not None else None,
        "cast_layers": sum(bool(_CAST.match(layer["name"])) for layer in layers) if known else None,
        "constants": {dtype: constants.count(dtype) for dtype in sorted(filter(None, set(constants)))},
        "nodes_without_layer": sum(node.name not in named for node in all_nodes(model)) if known else None,
    }


def compiled_report(common: EngineReport, file: ModelFile, out_dir: Path, why: tuple[str, list[str]]) -> EngineReport:
    """Report of a plan that cannot be built here, and was compiled; "planned" where the compiler refuses the file and
    the engine is for another product.

    Args:
        common: backend, declared, plan, lint.
        file: the plan's model.
        out_dir: gets the engine.
        why: none can be built here, and what was assumed besides.

    Raises:
        StageError: the compiler refuses the file, and the engine is for TensorRT for RTX; or the plan is wrong, or
            the engine cannot be written.
    """
    plan, (reason, assumed) = common["plan"], why
    declared, graph = plan["declared"], plan["graph"]
    try:
        facts, compiled = compile_engine(plan, file, out_dir)
    except (BuildError, RuntimeError) as error:
        code = error.code if isinstance(error, BuildError) else "runtime-refuses"
        if code in _NO_REFUSAL:
            raise StageError(code, f"{file.path}: not compiled: {error}") from error
        if plan["backend"] == RTX:
            raise StageError(code, f"{file.path}: TensorRT for RTX refuses: {error}") from error
        message = coded("not-supported", f"not compiled: {_refused(error)}: {error}")
        return {"status": "planned"} | common | none_built(plan, reason, [message, *assumed])
    unknown = precision_unknown(facts, plan["builder"]["profiling_verbosity"])
    state, why_not = judged_precision(facts, declared, graph, unknown)
    rows = gates(plan, file.typed, file.path, facts, compiled)
    reasons = [why_not] if state == FAILED else []
    reasons += [
        coded("engine-gate", f"engine.gates.{row['gate']}: {row['reason']}") for row in rows if row["state"] == FAILED
    ]
    open_gates = [f"engine.gates.{row['gate']}: {row['reason']}" for row in rows if row["state"] == NOT_VERIFIED]
    report: EngineReport = {
        "status": "failed" if reasons else "compiled",
        "reason": "; ".join(reasons) or f"nothing was executed: {reason}",
        "precision": precision_facts(graph, declared, state, why_not),
        "compiled": compiled,
        "gates": rows,
        "not_verified": [
            f"the engine's outputs and latency: {NOT_RUN}: {reason}",
            *([why_not] if state == NOT_VERIFIED else []),
            *open_gates,
            *assumed,
        ],
    }
    if reasons:
        report["reasons"] = reasons
    return {**common, **facts, **report}


def _refused(error: Exception) -> str:
    """What the compiler refuses, as far as it names operators."""
    problems = error.errors if isinstance(error, BuildError) else []
    lacks = sorted({each["op_type"] for each in problems if "UNSUPPORTED_NODE" in each["code"]})
    if not lacks:
        return "TensorRT for RTX refuses the file"
    return f"{' and '.join(lacks)} {'is' if len(lacks) == 1 else 'are'} not in TensorRT for RTX"


def none_built(plan: EnginePlan, reason: str, further: Sequence[str]) -> EngineReport:
    """The part of a report that concerns an engine that was not built."""
    return {
        "reason": reason,
        "precision": precision_facts(plan["graph"], plan["declared"], NOT_VERIFIED, "none was built"),
        "not_verified": [f"the engine: none was built: {reason}", *further],
    }
