"""Tensors below the smallest normal: 0 < absmax < 2^-14, held by float16 as subnormals, 2^-24 apart, or as 0.

    error(x)     2^-25, or all of x where that is less
    allowed(x)   max(share absmax, min over its readers of allowed(what they write) / gain);  share: underflow_share_max
    gain         1                          sums, moves, means, Sigmoid, Softmax, ...
                 terms * largest factor     products and convolutions
                 absmax(out) / absmax(x)    at most

Where error(x) > allowed(x), the producer of x is a candidate, and so is every reader that does not allow the error. A
residual branch with a small scale is none: what it is added to hides its error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import onnx_ir as ir

from truehalf.conversion.rules.base import Decision, RuleContext, Verdict, on_sample
from truehalf.float16 import LOST, NORMAL_MIN
from truehalf.ir.arithmetic import reduction_depth
from truehalf.ir.facts import all_nodes, subgraphs
from truehalf.ir.ops import Trait, has
from truehalf.ir.slots import is_float32

_ROUNDING = 2.0**-12  # of float16, in the range of normal numbers
# An error in an input is no larger, or hardly larger, in the output.
_NO_GAIN = Trait.DAMPS | Trait.NO_ARITHMETIC


def subnormal(context: RuleContext) -> Callable[[ir.Node, RuleContext], Decision | None]:
    """The rule for one model."""
    limit = context.precision.underflow_share_max
    felt = _felt(context, max(limit, _ROUNDING)) if limit is not None else {}

    def rule(node: ir.Node, context: RuleContext) -> Decision | None:
        for value, entry in context.measured(node) if felt else ():
            if value in felt and (value in node.outputs or node in felt[value]):
                absmax, sample = entry.absmax, entry.sample
                bound = f"is all below 2^-14, float16's smallest normal: |x| <= {absmax:.3g}"
                reason = f"{value.name!r} {bound}{on_sample(sample)}"
                return Decision(Verdict.fp32, "underflow", reason, absmax, NORMAL_MIN, value.name, sample)
        return None

    return rule


def _felt(context: RuleContext, share: float) -> dict[ir.Value, set[ir.Node]]:
    """Tensors below the smallest normal, each with the readers that feel its error."""
    nodes = list(all_nodes(context.model))
    values = [*context.model.graph.inputs, *(value for node in nodes for value in node.outputs)]
    sizes = {value: absmax for value in values if (absmax := context.absmax(value))}
    small = [value for value, absmax in sizes.items() if absmax < NORMAL_MIN]
    tolerances = _tolerances(sizes, context, share) if small else {}
    felt: dict[ir.Value, set[ir.Node]] = {}
    for value in small:
        error = min(sizes[value], LOST)
        if tolerances[value] < error:
            readers = dict.fromkeys(value.consumers())
            felt[value] = {n for n in readers if _allowed(n, value, sizes, tolerances, context) < error}
    return felt


def _tolerances(sizes: dict[ir.Value, float], context: RuleContext, share: float) -> dict[ir.Value, float]:
    """How large an error in each value may be: a share of it, or as much as all that is made of it allows."""
    found: dict[ir.Value, float] = {}
    for value in reversed(sizes):
        absmax = sizes[value]
        allowed = [_allowed(node, value, sizes, found, context) for node in value.consumers()]
        downstream = 0.0 if value.is_graph_output() else min(allowed, default=math.inf)
        found[value] = max(absmax * share, downstream, LOST if absmax >= NORMAL_MIN else 0.0)
    return found


def _allowed(
    node: ir.Node,
    value: ir.Value,
    sizes: Mapping[ir.Value, float],
    tolerances: Mapping[ir.Value, float],
    context: RuleContext,
) -> float:
    """How large an error in a value a reader of it allows; 0 where nothing is known of what it writes."""
    gain = _gain(node, value, context)
    written = [output for output in node.outputs if is_float32(output)]
    return min(
        (tolerances.get(output, 0.0) / min(gain, sizes.get(output, math.inf) / sizes[value]) for output in written),
        default=math.inf,
    )


def _gain(node: ir.Node, value: ir.Value, context: RuleContext) -> float:
    """How many times larger an error may become in a node, at most; infinite where nothing is known."""
    if node.domain != "" or subgraphs(node):
        return math.inf
    if has(node, _NO_GAIN):
        return 1.0
    if not has(node, Trait.BILINEAR) or len(node.inputs) < 2:
        return math.inf
    factors = [factor for factor in node.inputs[:2] if factor is not None and factor is not value]
    if len(factors) != 1:
        return math.inf
    facts = context.constant(factors[0])
    largest = facts.absmax if facts is not None else context.absmax(factors[0])
    return math.inf if largest is None else max(largest * reduction_depth(node), LOST)
