"""Facts of the layers that a builder made of an FP16 file, and the gates on them (engine.gates).

    half_share_less    fails where the share of the arithmetic in Half (truehalf.engines.layers) is more than this below
                       the file's
    fused_attention    of a compiled engine; not verified where an attention is not fused, unless the conversion has
                       evidence against it, which the file names (UNFUSED_KEY)

What the layers do not tell is not verified. They are facts of this compiler: TensorRT on a GPU chooses kernels by their
time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from truehalf.codes import coded
from truehalf.config.engine import EngineConfig
from truehalf.engines.engine_report import CompilerFacts, EngineGate, Layer
from truehalf.engines.layers import HalfShare, NodeNames, computes
from truehalf.errors import some_of
from truehalf.ir.facts import reached
from truehalf.ir.model_file import UNFUSED_KEY
from truehalf.ir.patterns import Attention, Neighbours
from truehalf.linting import Finding
from truehalf.linting.rules.attention import AttentionWillNotFuse
from truehalf.runtime.tensorrt import BuildFacts
from truehalf.verification.findings import FAILED, NOT_VERIFIED, VERIFIED

_NAMED = 5  # nodes that a reason names
_ATTENTION = re.compile(r"mha|flash|fmha", re.IGNORECASE)  # in the names of fused attention kernels
_CAST = re.compile(r"__myl_(?:Cast)+(?:_|$)")  # kernels that cast and do nothing else


@dataclass(frozen=True)
class Attentions:
    """Attentions of a graph by the name of their Softmax.

    Attributes:
        fused: in an attention kernel.
        unfused: the others, each with its FP32 nodes and casts, from Q K^T to the product with V.
    """

    fused: list[str]
    unfused: dict[str, list[str]]

    @classmethod
    def of(cls, model: ir.Model, layers: Sequence[Layer], names: NodeNames) -> Attentions:
        inside = {name for layer in layers if _ATTENTION.search(layer["name"]) for name in layer["onnx_nodes"]}
        fused, unfused = [], {}
        for attention in Neighbours(model).attentions():
            name = names.node(attention.softmax)
            if name in inside:
                fused.append(name)
            else:
                wide = (node for node in _nodes_of(attention) if node.op_type == "Cast" or _is_fp32(node))
                unfused[name] = [f"{node.op_type} {names.node(node)}" for node in wide]
        return cls(fused, unfused)


def _is_fp32(node: ir.Node) -> bool:
    return any(value.dtype == ir.DataType.FLOAT for value in node.outputs)


def _nodes_of(attention: Attention) -> list[ir.Node]:
    """Softmax, products, and the nodes on the ways between them."""

    def above(value: Any) -> list[ir.Value | None]:
        producer = value.producer()
        return [] if producer is None else list(producer.inputs)

    def below(value: Any) -> list[ir.Value | None]:
        return [output for node in value.consumers() for output in node.outputs]

    softmax, products = attention
    before = set(reached(softmax.inputs, above))
    after = set(reached(softmax.outputs, below))
    nodes = dict.fromkeys([softmax, *products])
    for product in products:
        between = before & set(reached(product.outputs, below)) | after & set(reached(product.inputs, above))
        nodes |= dict.fromkeys(node for value in between if (node := value.producer()) is not None)
    return list(nodes)


def compiler_facts(
    facts: BuildFacts,
    layers: Sequence[Layer] | None,
    share: HalfShare,
    attentions: Attentions,
    names: NodeNames,
    targets: Sequence[str],
) -> CompilerFacts:
    """Facts of a compiled engine.

    Args:
        layers: None: the log lists none in a form that is known.
        names: of all nodes of the file.
        targets: compute capabilities that it is compiled for.
    """
    rows, is_known = layers or [], layers is not None
    named = {name for layer in rows for name in layer["onnx_nodes"]}
    constants = [dtype for layer in rows for dtype in layer["constants"]]
    return {
        "compiler": f"TensorRT for RTX {facts['tensorrt']}",
        "targets": list(targets),
        "computing_layers": sum(map(computes, rows)) if is_known else None,
        "fused_attention": len(attentions.fused) if is_known else None,
        "attention_regions": len(attentions.fused) + len(attentions.unfused),
        "attention_not_fused": list(attentions.unfused) if is_known else [],
        "computed_in_fp32": share.lost,
        "file_half_arithmetic": share.file,
        "half_arithmetic": share.engine,
        "cast_layers": sum(bool(_CAST.match(layer["name"])) for layer in rows) if is_known else None,
        "constants": {dtype: constants.count(dtype) for dtype in sorted(filter(None, set(constants)))},
        "nodes_without_layer": sum(name not in named for name in names.shown.values()) if is_known else None,
    }


# --- gates ------------------------------------------------------------------------------------------------------------


def half_gate(share: HalfShare, layers: Sequence[Layer], options: EngineConfig, fault: str | None) -> list[EngineGate]:
    """The gate half_share_less of an FP16 file's engine; none if it is switched off.

    Args:
        fault: why TensorRT told no layers; None: it did.
    """
    less, limit = options.gates.half_share_less, None
    if less is None:
        return []
    state, reason = VERIFIED, ""
    if share.file is None or share.engine is None:
        state, reason = NOT_VERIFIED, fault or "the layers do not tell the types of enough nodes"
        if options.profiling_verbosity != "detailed":
            verbosity = f"engine.profiling_verbosity={options.profiling_verbosity}"
            reason = f"{verbosity} hides the types of layers; detailed shows them"
    elif share.engine < (limit := share.file - less):
        state = FAILED
        reason = (
            f"{100 * share.engine:.1f} % of the arithmetic is in Half, and {100 * share.file:.1f} % of the file's; "
            f"expected at most {100 * less:g} points less; in FP32 are {_placed(share.lost, layers)}"
        )
    gate: EngineGate = {"gate": "half_share_less", "state": state, "value": share.engine, "limit": limit}
    return [gate | {"reason": reason}]


def attention_gate(
    model: ir.Model, layers: Sequence[Layer] | None, attentions: Attentions, findings: Sequence[Finding]
) -> EngineGate:
    """The gate fused_attention of an FP16 file that was compiled.

    Args:
        findings: of lint, on this file.
    """
    fused, regions = len(attentions.fused), len(attentions.fused) + len(attentions.unfused)
    gate: EngineGate = {"gate": "fused_attention", "state": NOT_VERIFIED, "value": fused, "limit": regions}
    if layers is None:
        return gate | {"value": None, "reason": "the compiler's log does not tell what is fused"}
    evidence: Mapping[str, str] = json.loads(model.metadata_props.get(UNFUSED_KEY, "{}"))
    excused = {name: evidence[name] for name in attentions.unfused if name in evidence}
    gate |= {"excused": excused, "limit": regions - len(excused)}
    missing = [name for name in attentions.unfused if name not in excused]
    if not missing:
        return gate | {"state": VERIFIED, "reason": ""}
    held = some_of([node for name in missing for node in attentions.unfused[name]], _NAMED)
    holding = f", which hold in FP32 or cast {held}" if held else ", which hold no FP32 node and no cast"
    rule = AttentionWillNotFuse.id
    why = [finding.message for finding in findings if finding.rule == rule and finding.node in missing]
    sentence = f"{fused} of {regions} attentions are fused; not fused are {_placed(missing, layers)}{holding}"
    return gate | {"reason": ". ".join([sentence, *why])}


def outcome_of(gates: Iterable[EngineGate]) -> tuple[list[str], list[str]]:
    """A sentence for each gate that failed, and for each that is not verified."""
    sentences = [(gate["state"], f"engine.gates.{gate['gate']}: {gate['reason']}") for gate in gates]
    failed = [coded("beyond-gate", sentence) for state, sentence in sentences if state == FAILED]
    return failed, [sentence for state, sentence in sentences if state == NOT_VERIFIED]


def _placed(names: Sequence[str], layers: Sequence[Layer]) -> str:
    """Nodes, each with the layer of the engine that it lies in."""
    layer_of = {node: layer["name"] for layer in layers for node in layer["onnx_nodes"]}
    return some_of((f"{name} (layer {layer_of[name]})" if name in layer_of else name for name in names), _NAMED)
