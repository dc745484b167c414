"""Types that keep an attention in TensorRT's fused kernel, softmax(Q K^T) V in one layer.

It is taken where each of the two products either is FP16, or is FP32 and stands between nodes in FP16, moves aside
(measured with TensorRT for RTX, docs/explanation/attention.md). So, of an attention whose products have the verdicts p,

    p = free                            fp16
    p = fp32, and so is a node beside   the evidence rules the kernel out, which the reason of p says
    p = fp32, a node beside is free     that node: fp16

Softmax, scale and mask may have either type beside a product in FP16: there the cheaper one is taken.
"""

from __future__ import annotations

from dataclasses import replace

import onnx_ir as ir

from truehalf.conversion.rules.base import Decision, Verdict
from truehalf.ir.patterns import Attention, Neighbours, beside

RULE = "fused_attention"


def keep_fused(model: ir.Model, nodes: dict[ir.Node, Decision], *, decides: bool = True) -> dict[str, str]:
    """Decide for FP16 what keeps attentions fused and no rule keeps FP32.

    Args:
        nodes: decisions, which are changed.
        decides: False: evidence is named, and no node is decided for FP16.

    Returns:
        by name of the Softmax, what rules the kernel out.
    """
    lost = {}
    for attention in Neighbours(model).attentions():
        name = str(attention.softmax.name)
        if any(product not in nodes for product in attention.products):  # of another type than float32
            continue
        if reason := _ruled_out(attention, nodes):
            lost[name] = reason
            continue
        for product in attention.products if decides else ():
            near = [product] if nodes[product].verdict is Verdict.free else _in_fp32(product, nodes, Verdict.free)
            for node in near:
                why = "FP16" if node is product else f"FP16 beside {product.op_type} {product.name!r}, which is FP32,"
                nodes[node] = Decision(Verdict.fp16, RULE, f"{why} keeps the attention of Softmax {name!r} fused")
    return lost


def _ruled_out(attention: Attention, nodes: dict[ir.Node, Decision]) -> str | None:
    for product in attention.products:
        for node in _in_fp32(product, nodes, Verdict.fp32):
            decision = nodes[product]
            reason = f"FP32 stands beside FP32: {node.op_type} {node.name!r} ({nodes[node].rule}: {nodes[node].reason})"
            ruled_out = f"so the attention of Softmax {attention.softmax.name!r} is not fused"
            nodes[product] = replace(decision, reason=f"{decision.reason}; {reason}, {ruled_out}")
            return f"{product.op_type} {product.name!r} ({decision.rule}: {decision.reason}); {reason}"
    return None


def _in_fp32(product: ir.Node, nodes: dict[ir.Node, Decision], verdict: Verdict) -> list[ir.Node]:
    """Nodes with a verdict that stand beside a product in FP32."""
    if nodes[product].verdict is not Verdict.fp32:
        return []
    return [node for node in beside(product) if node in nodes and nodes[node].verdict is verdict]
