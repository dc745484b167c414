"""Attentions that decisions do not leave in TensorRT's fused kernel, softmax(Q K^T) V in one layer.

The kernel is taken where each of the two products either is FP16, or is FP32 and stands between nodes in FP16, moves
aside (measured with TensorRT for RTX, docs/explanation/attention.md). Products are FP16 unless evidence or a list keeps
them FP32; where that is so of a node beside one, too, the kernel is ruled out. Softmax, scale and mask may have either
type beside a product in FP16.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from truehalf.conversion.rules.base import Decision, Verdict
from truehalf.ir.patterns import Attention, Neighbours, beside


def unfused_attentions(model: ir.Model, nodes: Mapping[ir.Node, Decision]) -> dict[str, str]:
    """Map the name of each Softmax whose attention is not fused to what rules the kernel out."""
    attentions = Neighbours(model).attentions()
    judged = (each for each in attentions if all(product in nodes for product in each.products))
    return {str(each.softmax.name): reason for each in judged if (reason := _ruled_out(each, nodes))}


def _ruled_out(attention: Attention, nodes: Mapping[ir.Node, Decision]) -> str | None:
    for product in attention.products:
        if (decision := nodes[product]).verdict is not Verdict.fp32:
            continue
        for node in beside(product):
            near = nodes.get(node)
            if near is not None and near.verdict is Verdict.fp32:
                stands = f"FP32 stands beside FP32: {node.op_type} {node.name!r} ({near.rule}: {near.reason})"
                return f"{product.op_type} {product.name!r} ({decision.rule}: {decision.reason}); {stands}"
    return None
