"""Precision that the graph itself declares: a node whose metadata says that it stays FP32, and why.

metadata_props["truehalf.float32"] = reason  ->  candidate

Passes that make nodes use it where float16 would change more than the last digits, and no measured range shows it:
positions of samples, for one, are small numbers whose fraction counts.
"""

from __future__ import annotations

import onnx_ir as ir

from truehalf.conversion.rules.base import Decision, RuleContext, Verdict
from truehalf.float16 import KEEP_FLOAT32


def declared(node: ir.Node, context: RuleContext) -> Decision | None:
    reason = node.metadata_props.get(KEEP_FLOAT32)
    return Decision(Verdict.fp32, "declared", f"declared by its metadata: {reason}") if reason is not None else None
