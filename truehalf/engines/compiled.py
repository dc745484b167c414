"""Engine of a file compiled without a GPU, by TensorRT for RTX: NVIDIA's parser, builder and kernels, nothing executed.

What the builder's log says of each layer is read into facts: types, fused attention, ONNX nodes whose type the engine
changed, casts that are left. They are facts of this compiler: TensorRT on a GPU chooses kernels by their time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from truehalf.codes import coded
from truehalf.engines.engine_report import CompilerFacts, EnginePlan, EngineReport
from truehalf.engines.precision import precision_facts
from truehalf.errors import StageError
from truehalf.ir.facts import all_nodes
from truehalf.ir.patterns import Neighbours
from truehalf.runtime.tensorrt.build import build
from truehalf.runtime.tensorrt.proof import (
    changed_nodes,
    computes,
    precision_doubt,
    precision_problem,
    precision_unknown,
)
from truehalf.runtime.tensorrt.versions import RTX, BuildError, BuildPlan, EngineFacts
from truehalf.verification.findings import FAILED, NOT_VERIFIED, VERIFIED

if TYPE_CHECKING:
    import onnx_ir as ir

NOT_RUN = "compiled without a GPU, nothing was executed"
_ATTENTION = re.compile(r"mha|flash|fmha", re.IGNORECASE)  # in the names of fused attention kernels
_CAST = re.compile(r"__myl_(?:Cast)+(?:_|$)")  # kernels that cast and do nothing else


def compile_engine(
    plan: EnginePlan, model: ir.Model, model_path: Path, out_dir: Path
) -> tuple[EngineFacts, CompilerFacts]:
    """Compile a plan's model, and write the engine beside the plan as <name>.rtx.engine.

    Returns:
        facts of the engine, and what the compiler made of the model.

    Raises:
        BuildError: when the compiler refuses an option or the model.
        RuntimeError: when the library ends otherwise.
    """
    name = f"{Path(plan['engine']).stem}.rtx.engine"
    content = cast("BuildPlan", plan | {"onnx": str(model_path), "engine": name, "builder": _options(plan)})
    facts = build(content, out_dir, module=RTX)
    engine = str(Path(plan["engine"]).with_name(name))
    return facts | {"engine": engine, "provider": RTX}, compiler_facts(facts, model, plan)


def _options(plan: EnginePlan) -> dict[str, object]:
    """The builder's, without those that concern the machine that builds."""
    return dict(plan["builder"]) | {
        "timing_cache": None,
        "editable_timing_cache": False,
        "hardware_compatibility": "none",
    }


def compiler_facts(facts: EngineFacts, model: ir.Model, plan: EnginePlan) -> CompilerFacts:
    """What the compiler made of a model, by the layers that it logged; see CompilerFacts."""
    layers = facts["layer_table"]
    named = {name for layer in layers for name in layer["onnx_nodes"]}
    regions = [str(each.softmax.name) for each in Neighbours(model).attentions()]
    in_attention = {name for layer in layers if _ATTENTION.search(layer["name"]) for name in layer["onnx_nodes"]}
    known = facts["layers"] is not None
    constants = [dtype for layer in layers for dtype in layer["constants"]]
    return {
        "compiler": f"TensorRT for RTX {facts['tensorrt']}",
        "targets": plan.get("target", {}).get("compute_capability", []),
        "computing_layers": sum(map(computes, layers)) if known else None,
        "fused_attention": sum(name in in_attention for name in regions) if known else None,
        "attention_regions": len(regions),
        "attention_not_fused": [name for name in regions if name not in in_attention] if known else [],
        "computed_in_fp32": changed_nodes(facts, plan["graph"]),
        "cast_layers": sum(bool(_CAST.match(layer["name"])) for layer in layers) if known else None,
        "constants": {dtype: constants.count(dtype) for dtype in sorted(filter(None, set(constants)))},
        "nodes_without_layer": sum(node.name not in named for node in all_nodes(model)) if known else None,
    }


def compiled_report(
    common: EngineReport, model: ir.Model, model_path: Path, out_dir: Path, why: tuple[str, list[str]]
) -> EngineReport:
    """Report of a plan that cannot be built here, and was compiled; "planned" where the compiler refuses the file and
    the engine is for another product.

    Args:
        common: backend, declared, plan, lint.
        model: typed.
        out_dir: gets the engine.
        why: none can be built here, and what was assumed besides.

    Raises:
        StageError: the compiler refuses the file, and the engine is for TensorRT for RTX.
    """
    plan, (reason, assumed) = common["plan"], why
    declared, graph = plan["declared"], plan["graph"]
    try:
        facts, compiled = compile_engine(plan, model, model_path, out_dir)
    except (BuildError, RuntimeError) as error:
        if plan["backend"] == RTX:
            code = error.code if isinstance(error, BuildError) else "runtime-refuses"
            raise StageError(code, f"{model_path}: TensorRT for RTX refuses: {error}") from error
        message = coded("not-supported", f"not compiled: TensorRT for RTX refuses the file: {error}")
        return {"status": "planned"} | common | none_built(plan, reason, [message, *assumed])
    problem = precision_problem(facts, declared, graph)
    doubt = precision_unknown(facts, plan["builder"]["profiling_verbosity"]) or precision_doubt(facts, declared, graph)
    state = FAILED if problem else NOT_VERIFIED if doubt else VERIFIED
    report: EngineReport = {
        "status": "failed" if problem else "compiled",
        "reason": problem or f"without a GPU, nothing was executed: {reason}",
        "precision": precision_facts(graph, declared, state, problem or doubt or ""),
        "compiled": compiled,
        "not_verified": [f"the engine's outputs and latency: {NOT_RUN}: {reason}", *filter(None, [doubt]), *assumed],
    }
    if problem:
        report["reasons"] = [problem]
    return {**common, **facts, **report}


def none_built(plan: EnginePlan, reason: str, further: Sequence[str]) -> EngineReport:
    """The part of a report that concerns an engine that was not built."""
    return {
        "reason": reason,
        "precision": precision_facts(plan["graph"], plan["declared"], NOT_VERIFIED, "none was built"),
        "not_verified": [f"the engine: none was built: {reason}", *further],
    }
