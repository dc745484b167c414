"""Depth of reduction: how many terms an output element accumulates (truehalf.ir.arithmetic), against a bound."""

from __future__ import annotations

import onnx_ir as ir

from truehalf.conversion.rules.base import Decision, Evidence, Verdict
from truehalf.ir.arithmetic import reduction_depth


def depth(node: ir.Node, evidence: Evidence) -> Decision | None:
    limit = evidence.precision.reduction_depth_max
    terms = reduction_depth(node) if limit is not None else 1
    if limit is None or terms <= limit:
        return None
    reason = f"{node.op_type} accumulates {terms} terms > reduction_depth_max {limit}"
    return Decision(Verdict.fp32, "reduction_depth", reason, value=float(terms), threshold=float(limit))
