"""Precision that the graph itself settles, whatever was measured or listed.

    no_fp16_kernel   no float slot of the operator can be float16 (truehalf.ir.slots)
    quantized        operators that write, read or compute quantized tensors: their scales stay as they are
    subgraph         an operator with subgraphs other than If (Loop, Scan, ...), and all inside them
    any_type         Shape, Size, a Cast of float32: it reads either type as it stands

A custom operator has no FP16 kernel that onnx knows of; an include list may say that it has. Then its types must be
known.
"""

from __future__ import annotations

import onnx_ir as ir

from truehalf.conversion.rules.base import Decision, RuleContext, Verdict
from truehalf.ir.facts import all_nodes, is_op, named_ends, subgraphs, with_subgraphs
from truehalf.ir.ops import Trait, with_trait
from truehalf.ir.slots import is_float32, schema_of, takes_any_type


def sealed_nodes(model: ir.Model) -> dict[ir.Node, ir.Node]:
    """Nodes that stay FP32 because of the node with subgraphs that they are, or that they lie in."""
    found: dict[ir.Node, ir.Node] = {}
    for node in all_nodes(model):  # outer ones first
        if node not in found and subgraphs(node) and not is_op(node, "If"):
            found.update(dict.fromkeys(with_subgraphs(node), node))
    return found


def structure(node: ir.Node, context: RuleContext, seal: ir.Node | None, included: bool) -> Decision | None:
    """The verdict that the graph settles, if it does.

    Args:
        seal: the node with subgraphs that keeps this one FP32.
        included: whether an include list names the node; a custom operator may then be float16.
    """
    if seal is not None:
        inside = f"inside {seal.op_type} {seal.name!r}, whose subgraphs stay FP32" if seal is not node else ""
        return Decision(Verdict.fp32, "subgraph", inside or f"{node.op_type} holds subgraphs, which stay FP32")
    if takes_any_type(node) and not any(is_float32(value) for value in node.outputs):
        return Decision(Verdict.free, "any_type", f"{node.op_type} takes either type without a cast")
    custom = schema_of(node) is None
    if custom and not (included and node.domain != ""):
        reason = f"operator {node.domain or 'ai.onnx'}::{node.op_type} is not known to onnx"
        return Decision(Verdict.fp32, "no_fp16_kernel", reason)
    if node.op_type in with_trait(Trait.QUANTIZED):  # in any domain
        return Decision(Verdict.fp32, "quantized", "scales of a quantized part stay as they are")
    if odd := next((value for value in named_ends(node) if is_odd(value)), None):
        reason = f"{odd.name!r} is no tensor of known type, so nothing around it can change type"
        return Decision(Verdict.fp32, "no_fp16_kernel", reason, tensor=odd.name)
    if not custom and not subgraphs(node) and not context.moving(node):
        return Decision(Verdict.fp32, "no_fp16_kernel", f"{node.op_type} has no float16 kernel")
    return None


def is_judged(node: ir.Node) -> bool:
    """Whether a node has a float32 input or output, or one that may be such."""
    if node.op_type == "Constant" and node.domain == "":
        return False
    return any(is_float32(value) or is_odd(value) for value in named_ends(node))


def is_odd(value: ir.Value) -> bool:
    """Of unknown type, or a sequence or optional of float32."""
    return value.dtype is None or (value.dtype == ir.DataType.FLOAT and not is_float32(value))
