"""Gates on what the builder or compiler made of an FP16 file (engine.gates).

    half_share_less    share of the arithmetic in Half: with a(n) the operations of node n at the first profile's opt,
                       and L the FP16 nodes of the file in layers without Half,

                           file = sum of a(n) over FP16 nodes / sum of a(n),    engine = file - sum over L / sum of a(n)

                       fails where engine < file - half_share_less
    fused_attention    of a compiled engine; not verified where an attention is not fused that holds an FP32 node or a
                       cast, unless the conversion has evidence against it, which the file names (UNFUSED_KEY)

What the layers do not tell is not verified.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import onnx_ir as ir

from truehalf.config.engine import EngineGates
from truehalf.engines.compiling.fused import fp32_inside
from truehalf.engines.engine_report import CompilerFacts, EngineGate, EnginePlan
from truehalf.errors import some_of
from truehalf.ir.arithmetic import flops
from truehalf.ir.facts import all_nodes
from truehalf.ir.model_file import UNFUSED_KEY
from truehalf.ir.normalize import concrete_shapes
from truehalf.linting import lint
from truehalf.linting.rules.attention import AttentionWillNotFuse
from truehalf.runtime.tensorrt.proof import changed_nodes
from truehalf.runtime.tensorrt.versions import EngineFacts, Graph, Layer, Profile
from truehalf.verification.findings import FAILED, NOT_VERIFIED, VERIFIED

_NAMED = 5  # nodes that a reason names


def half_arithmetic(
    model: ir.Model, graph: Graph, lost: Sequence[str], profiles: Sequence[Profile]
) -> tuple[float, float] | None:
    """Shares of a model's arithmetic in FP16, in the file and in the engine, 0 to 1; None where it has no arithmetic.

    Args:
        graph: of the plan.
        lost: FP16 nodes of the file in layers without Half.
        profiles: of the plan.
    """
    opt = {name: shapes["opt"] for name, shapes in profiles[0].items()} if profiles else {}
    shapes = concrete_shapes(model, opt)
    arithmetic = {str(node.name): flops(node, shapes) for node in all_nodes(model)}
    total = sum(arithmetic.values())
    in_file, gone = (sum(arithmetic.get(name, 0.0) for name in names) for names in (graph["fp16_node_names"], lost))
    return (in_file / total, (in_file - gone) / total) if total else None


def half_share(plan: EnginePlan, model: ir.Model, facts: EngineFacts, less: float) -> EngineGate:
    """The gate half_share_less of an FP16 file's engine.

    Args:
        less: by how much the share may be less than the file's.
    """
    lost = changed_nodes(facts, plan["graph"])
    shares = half_arithmetic(model, plan["graph"], lost or [], plan["profiles"])
    if shares is None or lost is None:
        return unknown_share(_types_unknown(plan, facts))
    in_file, share = shares
    limit, reason = in_file - less, ""
    if share < limit:
        reason = (
            f"{100 * share:.1f} % of the arithmetic is in Half, and {100 * in_file:.1f} % of the file's; expected at "
            f"most {100 * less:g} points less; in FP32 are {_placed(lost, facts['layer_table'])}"
        )
    state = FAILED if reason else VERIFIED
    return {"gate": "half_share_less", "state": state, "value": share, "limit": limit, "reason": reason}


def unknown_share(reason: str) -> EngineGate:
    """The gate half_share_less where the types of layers are not known."""
    return {"gate": "half_share_less", "state": NOT_VERIFIED, "value": None, "limit": None, "reason": reason}


def _types_unknown(plan: EnginePlan, facts: EngineFacts) -> str:
    verbosity = plan["builder"]["profiling_verbosity"]
    if verbosity != "detailed":
        return f"engine.profiling_verbosity={verbosity} hides the types of layers; detailed shows them"
    return facts["inspection_fault"] or "the layers do not tell the types of enough nodes"


def fused_attention(model: ir.Model, layers: Sequence[Layer], compiled: CompilerFacts) -> EngineGate:
    """The gate fused_attention of an FP16 file that was compiled."""
    fused, regions = compiled["fused_attention"], compiled["attention_regions"]
    row: EngineGate = {"gate": "fused_attention", "state": VERIFIED, "value": fused, "limit": regions, "reason": ""}
    if fused is None:
        return row | {"state": NOT_VERIFIED, "reason": "the compiler's log does not tell what is fused"}
    evidence: Mapping[str, str] = json.loads(model.metadata_props.get(UNFUSED_KEY, "{}"))
    excused = {name: evidence[name] for name in compiled["attention_not_fused"] if name in evidence}
    row |= {"excused": excused, "limit": regions - len(excused)}
    inside = fp32_inside(model)
    named = {name for layer in layers for name in layer["onnx_nodes"]}
    missing = [name for name in compiled["attention_not_fused"] if name not in excused]
    unsure = [name for name in missing if inside[name] or name not in named]
    if not unsure:
        return row
    held = some_of([node for name in unsure for node in inside[name]], _NAMED)
    why = {each.node: each.message for each in lint(model) if each.rule == AttentionWillNotFuse.id}
    reason = f"{fused} of {regions} attentions are fused; not fused are {_placed(unsure, layers)}" + (
        f", which hold in FP32 or cast {held}" if held else ", which no layer names"
    )
    return row | {"state": NOT_VERIFIED, "reason": ". ".join([reason, *(why[name] for name in unsure if name in why)])}


def compiled_gates(
    plan: EnginePlan, model: ir.Model, facts: EngineFacts, compiled: CompilerFacts, chosen: EngineGates
) -> list[EngineGate]:
    """Each gate of a compiled engine with its outcome; none for a file that is not declared FP16."""
    if plan["declared"] != "fp16":
        return []
    found = [half_share(plan, model, facts, chosen.half_share_less)] if chosen.half_share_less is not None else []
    if chosen.fused_attention and compiled["attention_regions"]:
        found.append(fused_attention(model, facts["layer_table"], compiled))
    return found


def _placed(names: Sequence[str], layers: Sequence[Layer]) -> str:
    """Nodes, each with the layer of the engine that it lies in."""
    where = {node: layer["name"] for layer in layers for node in layer["onnx_nodes"]}
    return some_of((f"{name} (layer {where[name]})" if name in where else name for name in names), _NAMED)
