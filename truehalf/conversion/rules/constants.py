"""Rules on constants: weights beyond a bound, whole numbers that round.

init_max        a finite |w| > init_max (Inf is exact in float16)
init_overflow   a finite |w| > 65504, which float16 could only hold as 65504; with init_overflow="clamp" it shall
integers        more than one element, all of them whole numbers, and float16 holds not all of them (from 2049 on)
"""

from __future__ import annotations

import onnx_ir as ir

from truehalf.config.precision import InitOverflow
from truehalf.conversion.rules.base import Decision, RuleContext, Verdict
from truehalf.float16 import INTEGERS_MAX, MAX


def init_max(node: ir.Node, context: RuleContext) -> Decision | None:
    limit = context.precision.init_max
    if limit is None:
        return None
    ceiling = MAX if context.precision.init_overflow is InitOverflow.clamp else float("inf")
    constants = context.constants(node)
    largest = max(((min(facts.absmax, ceiling), name) for name, facts in constants), default=(0.0, ""))
    if largest[0] <= limit:
        return None
    value, name = largest
    reason = f"constant {name!r} holds |w| = {value:.4g} > init_max {limit:g}"
    return Decision(Verdict.fp32, "init_max", reason, value=value, threshold=limit, tensor=name)


def init_overflow(node: ir.Node, context: RuleContext) -> Decision | None:
    found = beyond_float16(node, context) if context.precision.init_overflow is InitOverflow.pin else None
    if found is None:
        return None
    name, value = found
    reason = f"constant {name!r} holds |w| = {value:.4g} > 65504, float16's largest"
    return Decision(Verdict.fp32, "init_overflow", reason, value=value, threshold=MAX, tensor=name)


def beyond_float16(node: ir.Node, context: RuleContext) -> tuple[str, float] | None:
    """The constant of a node that would be clamped the most as float16, with its |w|; None: none would be."""
    largest = max(((facts.absmax, name) for name, facts in context.constants(node)), default=(0.0, ""))
    return (largest[1], largest[0]) if largest[0] > MAX else None


def integers(node: ir.Node, context: RuleContext) -> Decision | None:
    if not context.precision.integers:
        return None
    for name, facts in context.constants(node):
        if facts.integers_changed and facts.elements > 1:
            reason = f"constant {name!r} holds whole numbers up to {facts.absmax:g}; float16 holds not all above 2048"
            return Decision(Verdict.fp32, "integers", reason, value=facts.absmax, threshold=INTEGERS_MAX, tensor=name)
    return None
