"""Facts of the layers that a compiler made of a file, and the gates on them (engine.gates).

With a(n) the operations of node n at the first profile's opt, H the nodes of the file that compute FP16, and L those of
H that lie only in layers without Half,

    file = sum of a(n) over H / sum of a(n)        engine = file - sum of a(n) over L / sum of a(n)

    half_share_less    fails where `engine` is more than this below `file`
    fused_attention    of TensorRT for RTX; not verified where an attention is not fused, unless the conversion has
                       evidence against it, which the file names (UNFUSED_KEY)

What the layers do not tell is not verified. They are facts of this compiler: TensorRT on a GPU chooses kernels by their
time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

import onnx_ir as ir

from truehalf.codes import coded
from truehalf.config.engine import EngineConfig
from truehalf.engines.engine_report import CompilerFacts, EngineGate, Layer
from truehalf.engines.layers import shown_name
from truehalf.errors import some_of
from truehalf.io_spec.profiles import Profile
from truehalf.ir.arithmetic import flops
from truehalf.ir.model_file import UNFUSED_KEY
from truehalf.ir.normalize import concrete_shapes
from truehalf.ir.ops import Trait, has
from truehalf.ir.patterns import Neighbours
from truehalf.patterns import Finding
from truehalf.patterns.attention import AttentionWillNotFuse
from truehalf.verification.findings import FAILED, NOT_VERIFIED, VERIFIED

_NAMED = 5  # nodes that a reason names
_KNOWN_MIN = 0.5  # of the arithmetic in FP16 that layers of known types must have: less is no sample of the rest
_WIDE = {"Float", "BFloat16"}
_ATTENTION = re.compile(r"mha|flash|fmha", re.IGNORECASE)  # in the names of fused attention kernels


def compiler_facts(
    compiler: str,
    targets: Sequence[str],
    model: ir.Model,
    nodes: Mapping[str, ir.Node],
    layers: Sequence[Layer] | None,
    profiles: Sequence[Profile],
) -> CompilerFacts:
    """Facts of an engine's layers.

    Args:
        compiler, targets: as CompilerFacts has them.
        model: of the file, typed.
        nodes: all nodes of it, by the names that the compiler was told.
        layers: None: their format is not known.
    """
    shown = {node: shown_name(told) for told, node in nodes.items()}
    shapes = concrete_shapes(model, {name: ranges["opt"] for name, ranges in profiles[0].items()} if profiles else {})
    arithmetic = {name: flops(node, shapes) for node, name in shown.items()}
    half = {name for node, name in shown.items() if _computes_fp16(node)}
    lost, known = _in_fp32(layers or [], half)
    total, in_file, told, gone = (sum(arithmetic[name] for name in some) for some in (arithmetic, half, known, lost))
    is_known = told >= _KNOWN_MIN * in_file
    softmaxes = [shown[attention.softmax] for attention in Neighbours(model).attentions()]
    kernels = [layer for layer in layers or [] if _ATTENTION.search(layer["name"])]
    fused = {name for layer in kernels for name in layer["onnx_nodes"]}.intersection(softmaxes)
    return {
        "compiler": compiler,
        "targets": list(targets),
        "layers": None if layers is None else len(layers),
        "fused_attention": None if layers is None else len(fused),
        "attention_regions": len(softmaxes),
        "attention_not_fused": [] if layers is None else [name for name in softmaxes if name not in fused],
        "computed_in_fp32": sorted(lost) if is_known else [],
        "file_half_arithmetic": in_file / total if total else None,
        "half_arithmetic": (in_file - gone) / total if total and is_known else None,
    }


def _computes_fp16(node: ir.Node) -> bool:
    """True if a node outputs FLOAT16, no other float, and does more than move values: an engine need not have casts,
    constants and moves.
    """
    types = {output.dtype for output in node.outputs if output.name}
    floats = {dtype for dtype in types if dtype is not None and dtype.is_floating_point()}
    return None not in types and floats == {ir.DataType.FLOAT16} and not has(node, Trait.NO_ARITHMETIC)


def _in_fp32(layers: Sequence[Layer], half: set[str]) -> tuple[set[str], set[str]]:
    """Of the FP16 nodes of a file those that lie only in layers without Half, and those of which layers tell this.

    A layer that fuses other nodes, too, may cast to FP16 and back inside: it counts only if it tells Half.
    """
    kept, lost = set[str](), set[str]()
    for layer in layers:
        nodes = half.intersection(layer["onnx_nodes"])
        if "Half" in layer["types"]:
            kept |= nodes
        elif nodes.issuperset(layer["onnx_nodes"]) and _WIDE.intersection(layer["types"]) and not _is_opaque(layer):
            lost |= nodes
    return lost - kept, lost | kept


def _is_opaque(layer: Layer) -> bool:
    """True for a layer of unknown types, as Myelin and ForeignNode: a piece of the network compiled as a whole."""
    return (
        None in layer["types"]
        or "ForeignNode[" in layer["name"]
        or str(layer["type"]).lower() in ("foreignnode", "myelin")
    )


# --- gates ------------------------------------------------------------------------------------------------------------


def half_gate(facts: CompilerFacts, layers: Sequence[Layer], options: EngineConfig) -> list[EngineGate]:
    """The gate half_share_less of an FP16 file's engine; none if it is switched off."""
    less, limit = options.gates.half_share_less, None
    if less is None:
        return []
    in_file, in_engine = facts["file_half_arithmetic"], facts["half_arithmetic"]
    state, reason = VERIFIED, ""
    if in_file is None or in_engine is None:
        state, reason = NOT_VERIFIED, "the layers do not tell the types of enough nodes"
    elif in_engine < (limit := in_file - less):
        state = FAILED
        reason = (
            f"{100 * in_engine:.1f} % of the arithmetic is in Half, and {100 * in_file:.1f} % of the file's; expected "
            f"at most {100 * less:g} points less; in FP32 are {_placed(facts['computed_in_fp32'], layers)}"
        )
    return [{"gate": "half_share_less", "state": state, "value": in_engine, "limit": limit, "reason": reason}]


def attention_gate(
    model: ir.Model, facts: CompilerFacts, layers: Sequence[Layer], findings: Sequence[Finding]
) -> EngineGate:
    """The gate fused_attention of an FP16 file.

    Args:
        model: of the file.
        findings: of lint, on this file.
    """
    fused, regions, unfused = facts["fused_attention"], facts["attention_regions"], facts["attention_not_fused"]
    evidence: Mapping[str, str] = json.loads(model.metadata_props.get(UNFUSED_KEY, "{}"))
    excused = {name: evidence[name] for name in unfused if name in evidence}
    gate: EngineGate = {"gate": "fused_attention", "value": fused, "limit": regions - len(excused), "excused": excused}
    if fused is None:
        return gate | {"state": NOT_VERIFIED, "reason": "the compiler's log does not tell what is fused"}
    missing = [name for name in unfused if name not in excused]
    if not missing:
        return gate | {"state": VERIFIED, "reason": ""}
    rule = AttentionWillNotFuse.id
    why = [finding.message for finding in findings if finding.rule == rule and finding.node in missing]
    sentence = f"{fused} of {regions} attentions are fused; not fused are {_placed(missing, layers)}"
    return gate | {"state": NOT_VERIFIED, "reason": ". ".join([sentence, *why])}


def gate_sentence(gate: EngineGate) -> str:
    """Why a gate failed or is not verified."""
    text = f"engine.gates.{gate['gate']}: {gate['reason']}"
    return coded("beyond-gate", text) if gate["state"] == FAILED else text


def _placed(names: Sequence[str], layers: Sequence[Layer]) -> str:
    """Nodes, each with the layer of the engine that it lies in."""
    layer_of = {node: layer["name"] for layer in layers for node in layer["onnx_nodes"]}
    return some_of((f"{name} (layer {layer_of[name]})" if name in layer_of else name for name in names), _NAMED)
