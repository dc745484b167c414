"""Small values: what float16 makes 0, or holds with few bits, where that matters.

    constant   more than underflow_share_max of its nonzero elements are 0 in float16 (|w| <= 2^-25), and the largest is
               below 2^-13, so that they are no less than its rounding; in front of a quotient whatever the largest;
               never in a sum, where 2^-25 more or less is nothing but for an epsilon
    epsilon    a constant that is added, or that a value is kept above, in front of Log, Reciprocal, Sqrt, a denominator
               or the base of a negative power, and that is 0 in float16; it and what it protects
    variance   of a BatchNormalization: float16 changes v + epsilon by more than 2^-7 of it, or makes it 0; for a
               measured variance, at the worst v between its extremes

Below 2^-14 the values of float16 are 2^-24 apart. Its error is then 2^-25/|x| of x, up to all of it at 2^-25, against
2^-11 above. A quotient takes that error on as it is; a logarithm as an absolute one: log x(1 + e) = log x + e. So an
epsilon in front of a logarithm must also keep its value to 2^-7, which is what a logarithm between -8 and -16 is apart
from the next in float16.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import onnx_ir as ir

from truehalf.calibration.ranges_form import TensorRange
from truehalf.conversion.rules.base import Decision, RuleContext, Verdict, on_sample
from truehalf.float16 import LOST, NORMAL_MIN
from truehalf.ir.facts import all_nodes, is_op
from truehalf.ir.ops import Trait, has, row_of

_LOG_ERROR = 2.0**-7
_LOST_IN_ROUNDING = 2.0**-13  # a larger |w| has itself a rounding error beyond 2^-25
_VARIANCE = 4  # BatchNormalization's input
_EPSILON = 1e-5  # its default


def underflow(context: RuleContext) -> Callable[[ir.Node, RuleContext], Decision | None]:
    """The rule for one model."""
    limit = context.precision.underflow_share_max
    if limit is None:
        return lambda node, context: None
    epsilons = _epsilons(context)

    def rule(node: ir.Node, context: RuleContext) -> Decision | None:
        if node in epsilons:
            return epsilons[node]
        if node.op_type == "BatchNormalization" and node.domain == "" and (found := _variance(node, context)):
            return found
        return _constant(node, context, limit)

    return rule


def _constant(node: ir.Node, context: RuleContext, limit: float) -> Decision | None:
    for name, facts in context.constants(node) if not has(node, Trait.DAMPS) else ():
        share = facts.lost / facts.nonzero if facts.nonzero else 0.0
        divides = any(value.name == name and _is_protected(node, value) for value in context.moving(node))
        if share > limit and (divides or facts.absmax < _LOST_IN_ROUNDING):
            reason = f"{share:.3g} of the nonzero elements of constant {name!r} are 0 in float16 (|w| <= 2^-25)"
            return Decision(Verdict.fp32, "underflow", reason, value=share, threshold=limit, tensor=name)
    return None


def _variance(node: ir.Node, context: RuleContext) -> Decision | None:
    """BatchNormalization divides by the root of v + epsilon: it needs every v of its channels, not most of them."""
    value = node.inputs[_VARIANCE]
    if value is None or value not in context.moving(node):
        return None
    epsilon = node.attributes.get_float("epsilon", _EPSILON)
    tensor, sample = ir.convenience.get_const_tensor(value), None
    if tensor is not None:
        variances = tensor.numpy().astype(np.float64).ravel()
        variances = variances[np.isfinite(variances) & (variances >= 0)]
        with np.errstate(over="ignore"):
            errors = np.abs(variances.astype(np.float16).astype(np.float64) - variances)
    else:
        entry = context.entry(value) or TensorRange()
        low, high, sample = entry.min, entry.absmax, entry.sample
        if low is None or high is None:
            return None
        variances = np.array([max(low, 0.0), min(max(low, LOST), high)])
        errors = np.minimum(variances, LOST)
    kept = variances < NORMAL_MIN
    variances, errors = variances[kept], errors[kept]
    divisors = variances + epsilon
    lost = (divisors <= LOST) | (errors > _LOG_ERROR * divisors)
    if not lost.any():
        return None
    worst = float(variances[lost].min())
    reason = (
        f"variance {value.name!r} = {worst:.3g} is lost in float16 beside epsilon = {epsilon:.3g}{on_sample(sample)}"
    )
    return Decision(Verdict.fp32, "underflow", reason, worst, LOST, value.name, sample)


# --- epsilons ---------------------------------------------------------------------------------------------------------


def _epsilons(context: RuleContext) -> dict[ir.Node, Decision]:
    """Nodes with an epsilon that float16 loses, what the epsilon protects, and the moves between."""
    found: dict[ir.Node, Decision] = {}
    for node in all_nodes(context.model):
        for epsilon, name in _floors(node, context):
            error = abs(float(np.float16(epsilon)) - epsilon) / epsilon
            if error <= _LOG_ERROR:
                continue
            path = _protected(node, epsilon)
            if path:
                protected = next(member for member in path if row_of(member).divides is not None)
                becomes = "0" if epsilon <= LOST else f"{float(np.float16(epsilon)):.3g}"
                protects = f"protects {protected.op_type} {protected.name!r}"
                reason = f"epsilon {name!r} = {epsilon:.3g} is {becomes} in float16, and {protects}"
                decision = Decision(Verdict.fp32, "underflow", reason, epsilon, LOST, name)
                for member in [node, *path]:
                    found.setdefault(member, decision)
    return found


def _floors(node: ir.Node, context: RuleContext) -> Iterator[tuple[float, str]]:
    """Constants, of one small positive number, that a node adds or keeps its result above; each with its name."""
    if not is_op(node, "Add", "Max", "Clip"):
        return
    for value in node.inputs[1:2] if node.op_type == "Clip" else node.inputs:
        facts = context.constant(value) if value is not None else None
        if value is not None and facts is not None and facts.elements and 0 < facts.lowest == facts.absmax < NORMAL_MIN:
            yield facts.absmax, value.name or ""
    if node.op_type == "Clip" and 0 < (low := node.attributes.get_float("min", 0.0)) < NORMAL_MIN:
        yield low, f"{node.name}.min"


def _protected(node: ir.Node, epsilon: float) -> list[ir.Node]:
    """What an epsilon protects, each with the way to it; empty when it protects nothing."""
    came_from: dict[ir.Node, ir.Node] = {}
    found: dict[ir.Node, None] = {}
    waiting = [(node, epsilon)]
    while waiting:
        last, low = waiting.pop()
        for user in (user for value in last.outputs for user in value.consumers()):
            moves = has(user, Trait.NO_ARITHMETIC)
            if user in came_from or not (moves or any(_is_protected(user, value) for value in last.outputs)):
                continue
            came_from[user] = last
            if not moves and (low <= LOST or user.op_type == "Log"):
                step = user
                while step is not node:
                    found[step] = None
                    step = came_from[step]
            if moves or user.op_type == "Sqrt":
                waiting.append((user, low if moves else low**0.5))
    return list(found)


def _is_protected(node: ir.Node, value: ir.Value) -> bool:
    position = row_of(node).divides
    if position is None or position >= len(node.inputs) or node.inputs[position] is not value:
        return False
    if node.op_type == "Pow":
        exponent = node.inputs[1]
        tensor = ir.convenience.get_const_tensor(exponent) if exponent is not None else None
        return tensor is not None and tensor.size > 0 and bool((tensor.numpy() < 0).any())
    return True
