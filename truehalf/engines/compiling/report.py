"""Engine of a file compiled by TensorRT for RTX: NVIDIA's parser, builder and kernels, nothing executed.

What the builder's log says of each layer is read into facts: types, fused attention, ONNX nodes whose type the engine
changed, casts that are left. They are facts of this compiler: TensorRT on a GPU chooses kernels by their time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import onnx_ir as ir

from truehalf.codes import coded
from truehalf.config.engine import EngineGates
from truehalf.engines.compiling.fused import attentions
from truehalf.engines.compiling.gates import compiled_gates, half_arithmetic
from truehalf.engines.engine_report import CompilerFacts, EngineGate, EnginePlan, EngineReport
from truehalf.engines.precision import precision_facts
from truehalf.errors import StageError
from truehalf.ir.facts import all_nodes
from truehalf.ir.model_forms import ModelFile
from truehalf.runtime.tensorrt.apart import build_apart
from truehalf.runtime.tensorrt.proof import changed_nodes, computes
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
    name = f"{Path(plan['engine']).stem}.rtx.engine"
    changes = {"onnx": str(file.path), "engine": name, "builder": _options(plan)}
    facts = build_apart(cast("BuildPlan", plan | changes), out_dir, module=RTX)
    engine = str(Path(plan["engine"]).with_name(name))
    return facts | {"engine": engine, "provider": RTX}, compiler_facts(facts, file.typed, plan)


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
    shares = half_arithmetic(model, graph, lost or [], plan["profiles"])
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


def compiled_report(
    common: EngineReport, file: ModelFile, out_dir: Path, why: tuple[str, list[str]], chosen: EngineGates
) -> EngineReport:
    """Report of a plan that cannot be built here, and was compiled; "planned" where the compiler refuses the file and
    the engine is for another product.

    Args:
        common: backend, declared, plan, lint.
        file: the plan's model.
        out_dir: gets the engine.
        why: none can be built here, and what was assumed besides.
        chosen: gates.

    Raises:
        StageError: the compiler refuses the file, and the engine is for TensorRT for RTX; or the plan is wrong, or
            the engine cannot be written.
    """
    plan, (reason, assumed) = common.plan, why
    assert plan is not None
    try:
        facts, compiled = compile_engine(plan, file, out_dir)
    except (BuildError, RuntimeError) as error:
        code = error.code if isinstance(error, BuildError) else "runtime-refuses"
        if code in _NO_REFUSAL:
            raise StageError(code, f"{file.path}: not compiled: {error}") from error
        if plan["backend"] == RTX:
            raise StageError(code, f"{file.path}: TensorRT for RTX refuses: {error}") from error
        message = coded("not-supported", f"not compiled: {_refused(error)}: {error}")
        return none_built(common, plan, reason, [message, *assumed])
    rows = compiled_gates(plan, file.typed, facts, compiled, chosen)
    reasons, open_gates = outcome_of(rows)
    return replace(
        common.with_facts(facts),
        status="failed" if reasons else "compiled",
        reason="; ".join(reasons) or f"nothing was executed: {reason}",
        reasons=reasons,
        precision=precision_facts(plan["graph"], plan["declared"]),
        compiled=compiled,
        gates=rows,
        not_verified=[
            f"the engine's outputs and latency: {NOT_RUN}: {reason}",
            *open_gates,
            *assumed,
        ],
    )


def outcome_of(rows: Sequence[EngineGate]) -> tuple[list[str], list[str]]:
    """A sentence for each gate that failed, and for each that is not verified."""
    said = {row["gate"]: f"engine.gates.{row['gate']}: {row['reason']}" for row in rows}
    failed = [coded("beyond-gate", said[row["gate"]]) for row in rows if row["state"] == FAILED]
    return failed, [said[row["gate"]] for row in rows if row["state"] == NOT_VERIFIED]


def _refused(error: Exception) -> str:
    """What the compiler refuses, as far as it names operators."""
    problems = error.errors if isinstance(error, BuildError) else []
    lacks = sorted({each["op_type"] for each in problems if "UNSUPPORTED_NODE" in each["code"]})
    if not lacks:
        return "TensorRT for RTX refuses the file"
    return f"{' and '.join(lacks)} {'is' if len(lacks) == 1 else 'are'} not in TensorRT for RTX"


def none_built(common: EngineReport, plan: EnginePlan, reason: str, further: Sequence[str]) -> EngineReport:
    """The report of an engine that was not built: "planned", and why."""
    return replace(
        common,
        status="planned",
        reason=reason,
        precision=precision_facts(plan["graph"], plan["declared"]),
        not_verified=[f"the engine: none was built: {reason}", *further],
    )
