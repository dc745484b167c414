"""Sums inside a node: the largest sum or mean square that calibration found there, where inputs and outputs may fit.

inner[node] * safety_factor > 65504  ->  candidate
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from truehalf.conversion.rules.base import Decision, Evidence, Verdict, finite, on_sample
from truehalf.float16 import MAX


def inner(node: ir.Node, evidence: Evidence) -> Decision | None:
    if not evidence.precision.inner or evidence.ranges is None:
        return None
    entry = (evidence.ranges.get("inner") or {}).get(node.name)
    value = finite(entry.get("value")) if isinstance(entry, Mapping) else None
    factor = evidence.precision.safety_factor
    if entry is None or value is None or value * factor <= MAX:
        return None
    quantity, sample = str(entry.get("quantity", "sum")).replace("_", " "), entry.get("sample")
    scaled = f" * safety_factor {factor:g}" if factor != 1 else ""
    reason = f"the {quantity} inside {node.op_type} reaches {value:.4g}{scaled} > 65504{on_sample(sample)}"
    return Decision(Verdict.fp32, "inner", reason, value=value, threshold=MAX, sample=sample)
