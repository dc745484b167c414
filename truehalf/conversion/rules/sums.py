"""Sums inside a node, where inputs and outputs may fit.

inner              the largest sum, mean square or logit that calibration found there, times safety_factor, is > 65504
reduction_depth    an output element accumulates more terms (truehalf.ir.arithmetic) than reduction_depth_max
"""

from __future__ import annotations

import onnx_ir as ir

from truehalf.conversion.rules.base import Decision, RuleContext, Verdict, on_sample
from truehalf.float16 import MAX
from truehalf.ir.arithmetic import reduction_depth


def inner(node: ir.Node, context: RuleContext) -> Decision | None:
    if not context.precision.inner or context.ranges is None:
        return None
    found = context.ranges.inner.get(node.name or "")
    factor = context.precision.safety_factor
    if found is None or found.value is None or found.value * factor <= MAX:
        return None
    scaled = f" * safety_factor {factor:g}" if factor != 1 else ""
    quantity = found.quantity.replace("_", " ")
    reason = f"the {quantity} inside {node.op_type} reaches {found.value:.4g}{scaled} > 65504{on_sample(found.sample)}"
    return Decision(Verdict.fp32, "inner", reason, value=found.value, threshold=MAX, sample=found.sample)


def depth(node: ir.Node, context: RuleContext) -> Decision | None:
    limit = context.precision.reduction_depth_max
    terms = reduction_depth(node) if limit is not None else 1
    if limit is None or terms <= limit:
        return None
    reason = f"{node.op_type} accumulates {terms} terms > reduction_depth_max {limit}"
    return Decision(Verdict.fp32, "reduction_depth", reason, value=float(terms), threshold=float(limit))
