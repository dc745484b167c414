"""Gates on what the compiler made of an FP16 file (engine.gates).

    half_share_less    share of the arithmetic in Half: with a(n) the operations of node n at the first profile's opt,
                       and L the FP16 nodes of the file in layers without Half,

                           file = sum of a(n) over FP16 nodes / sum of a(n),    engine = file - sum over L / sum of a(n)

                       fails where engine < file - half_share_less
    fused_attention    fails where an attention is not fused that is fused in the same graph wholly in FP16, unless the
                       conversion has evidence against it, which the file names (UNFUSED_KEY)

What the compiler's log does not tell is not verified.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx_ir as ir

from truehalf.config.engine import EngineGates
from truehalf.engines.compiling.fused import fused_in_fp16
from truehalf.engines.engine_report import CompilerFacts, EngineGate, EnginePlan
from truehalf.errors import StageError, some_of
from truehalf.ir.arithmetic import flops
from truehalf.ir.facts import all_nodes
from truehalf.ir.model_file import UNFUSED_KEY
from truehalf.ir.normalize import concrete_shapes
from truehalf.linting import lint
from truehalf.linting.rules.attention import AttentionWillNotFuse
from truehalf.runtime.tensorrt.versions import BuildError, EngineFacts, Graph, Layer, Profile
from truehalf.verification.findings import FAILED, NOT_VERIFIED, VERIFIED

_NAMED = 5  # nodes that a reason names
_UNKNOWN = "the compiler's log does not tell"


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


def gates(
    plan: EnginePlan, model: ir.Model, model_path: Path, facts: EngineFacts, compiled: CompilerFacts
) -> list[EngineGate]:
    """Each gate of a plan with its outcome; none for a file that is not declared FP16."""
    chosen = EngineGates(**plan["gates"])
    found = []
    if plan["declared"] == "fp16" and chosen.half_share_less is not None:
        found.append(_half_share(chosen.half_share_less, facts["layer_table"], compiled))
    if plan["declared"] == "fp16" and chosen.fused_attention and compiled["attention_regions"]:
        found.append(_fused_attention(plan, model, model_path, facts["layer_table"], compiled))
    return found


def _half_share(less: float, layers: Sequence[Layer], compiled: CompilerFacts) -> EngineGate:
    in_file, share = compiled["file_half_arithmetic"], compiled["half_arithmetic"]
    if in_file is None or share is None:
        reason = f"{_UNKNOWN} the types of enough nodes"
        return {"gate": "half_share_less", "state": NOT_VERIFIED, "value": share, "limit": None, "reason": reason}
    limit, reason = in_file - less, ""
    if share < limit:
        lost = compiled["computed_in_fp32"]
        reason = (
            f"{100 * share:.1f} % of the arithmetic is in Half, and {100 * in_file:.1f} % of the file's; expected at "
            f"most {100 * less:g} points less; in FP32 are {_placed(lost, layers)}"
        )
    state = FAILED if reason else VERIFIED
    return {"gate": "half_share_less", "state": state, "value": share, "limit": limit, "reason": reason}


def _fused_attention(
    plan: EnginePlan, model: ir.Model, model_path: Path, layers: Sequence[Layer], compiled: CompilerFacts
) -> EngineGate:
    fused, regions = compiled["fused_attention"], compiled["attention_regions"]
    row: EngineGate = {"gate": "fused_attention", "state": VERIFIED, "value": fused, "limit": regions, "reason": ""}
    if fused is None:
        return row | {"state": NOT_VERIFIED, "reason": f"{_UNKNOWN} what is fused"}
    evidence: Mapping[str, str] = json.loads(model.metadata_props.get(UNFUSED_KEY, "{}"))
    excused = {name: evidence[name] for name in compiled["attention_not_fused"] if name in evidence}
    row["excused"] = excused
    row["limit"] = regions - len(excused)  # at most: what is fused in FP16 need not be known where nothing is missing
    missing = [name for name in compiled["attention_not_fused"] if name not in excused]
    if not missing:
        return row
    try:
        in_fp16 = fused_in_fp16(plan, model_path)
    except (BuildError, RuntimeError, StageError) as error:  # of a graph that is the gate's own
        return row | {"state": NOT_VERIFIED, "reason": f"the graph wholly in FP16 is refused: {error}"}
    row["limit"] = len([name for name in in_fp16 if name not in excused])
    lost = [name for name in missing if name in in_fp16]
    if not lost:
        return row
    why = {each.node: each.message for each in lint(model) if each.rule == AttentionWillNotFuse.id}
    reason = (
        f"{fused} of {regions} attentions are fused, and {row['limit']} where the graph is wholly FP16 "
        f"({len(excused)} more have evidence against it); not fused are {_placed(lost, layers)}"
    )
    return row | {"state": FAILED, "reason": ". ".join([reason, *(why[name] for name in lost if name in why)])}


def _placed(names: Sequence[str], layers: Sequence[Layer]) -> str:
    """Nodes, each with the layer of the engine that it lies in."""
    where = {node: layer["name"] for layer in layers for node in layer["onnx_nodes"]}
    return some_of((f"{name} (layer {where[name]})" if name in where else name for name in names), _NAMED)
