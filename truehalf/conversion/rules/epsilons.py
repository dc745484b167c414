"""Epsilons: small numbers that keep a denominator, a root or a logarithm away from 0, where float16 loses them.

A guard is Add(x, e), Max(x, e), Clip(x, e, ...) or Where(c, x, e), where e is one positive number below 2^-14, written
out or filled in (masked_fill). Moves, roots and powers p > 0 pass it on; it is needed at

    Div(y, g), Reciprocal(g), g^-p, Sqrt(g)    and float16 makes e 0: 0 / 0 is NaN
    Div(c, g), Reciprocal(g), g^-p             and the result at e is beyond 65504: Inf * 0 is NaN
    Log(g)                                     and float16 changes e by more than 2^-7 of it, which is what a logarithm
                                               between -8 and -16 is apart from the next in float16

Samples seldom show it: a row of zeros does (padding, a dead channel). All from the guard to where it is needed runs in
FP32, and with it a sum or mean that the guard is added to; in the second case also the nodes that read the quotient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from truehalf.conversion.rules.base import Decision, RuleContext, Verdict
from truehalf.float16 import LOST, MAX, NORMAL_MIN
from truehalf.ir.facts import all_nodes, constant_of, is_op
from truehalf.ir.ops import Trait, has, moved_inputs

_LOG_ERROR = 2.0**-7
_GUARDS = {"Add": (0, 1), "Max": (0, 1), "Clip": (1,), "Where": (1, 2)}  # inputs that may be the epsilon


def epsilons(context: RuleContext) -> Callable[[ir.Node, RuleContext], Decision | None]:
    """Make the rule for one model."""
    found: dict[ir.Node, Decision] = {}
    for node in all_nodes(context.model) if context.precision.epsilons else ():
        for epsilon, name in _guards(node, context):
            for need in _needs([], node.outputs[0], epsilon):
                where = f"{need.node.op_type} {need.node.name!r}"
                becomes = f"{float(np.float16(epsilon)):.3g}"
                why = f"{where} reaches {need.result:.3g}" if need.result > MAX else f"protects {where}"
                reason = f"epsilon {name!r} = {epsilon:.3g} is {becomes} in float16, and {why}"
                decision = Decision(Verdict.fp32, "epsilon", reason, epsilon, LOST, name)
                for member in (*_sums(node), node, *need.way, need.node, *need.readers):
                    found.setdefault(member, decision)
    return lambda node, context: found.get(node)


def _guards(node: ir.Node, context: RuleContext) -> Iterator[tuple[float, str]]:
    """The epsilons that a node keeps its output above, each with its name."""
    if not is_op(node, *_GUARDS):
        return
    for position in _GUARDS[node.op_type]:
        value = node.inputs[position] if position < len(node.inputs) else None
        facts = context.origin(value) if value is not None else None
        if value is not None and facts is not None and facts.elements and 0 < facts.lowest == facts.absmax < NORMAL_MIN:
            yield facts.absmax, value.name or ""
    if node.op_type == "Clip" and 0 < (low := node.attributes.get_float("min", 0.0)) < NORMAL_MIN:  # before opset 11
        yield low, f"{node.name}.min"


@dataclass(frozen=True)
class _Need:
    """A node that needs an epsilon.

    Attributes:
        way: nodes between the guard and it.
        result: what it computes of the epsilon; infinite where float16 makes that 0.
        readers: nodes that read a result beyond float16, and the moves before them.
    """

    way: list[ir.Node]
    node: ir.Node
    result: float
    readers: list[ir.Node]


def _needs(way: list[ir.Node], value: ir.Value, low: float) -> Iterator[_Need]:
    """Find the nodes behind a value that need its smallest number.

    Args:
        way: nodes from the guard to the value, the guard left out.
        low: what the epsilon is in the value.
    """
    is_lost = low <= LOST
    for node, position in value.uses():
        if node in way or node.domain != "":
            continue
        power = _power(node, position)
        if has(node, Trait.NO_ARITHMETIC) and position in moved_inputs(node):
            yield from _needs([*way, node], node.outputs[0], low)
        elif node.op_type == "Log" and abs(float(np.float16(low)) - low) > _LOG_ERROR * low:
            yield _Need(way, node, 0.0, [])
        elif power is not None and power > 0:
            if is_lost:
                yield _Need(way, node, 0.0, [])
            yield from _needs([*way, node], node.outputs[0], low**power)
        elif power is not None:
            dividend = constant_of(node.inputs[0]) if node.op_type == "Div" else np.ones(1)
            result = 0.0 if dividend is None or not dividend.size else float(np.abs(dividend).max()) * low**power
            if is_lost or result > MAX:
                yield _Need(way, node, result, list(_readers(node)) if result > MAX else [])


def _power(node: ir.Node, position: int) -> float | None:
    """The power to which a node raises an input: Sqrt, Reciprocal, Pow by a constant, a divisor; None: another node."""
    if node.op_type in ("Sqrt", "Reciprocal"):
        return 0.5 if node.op_type == "Sqrt" else -1.0
    if node.op_type == "Div":
        return -1.0 if position == 1 else None
    exponent = constant_of(node.inputs[1]) if node.op_type == "Pow" and position == 0 else None
    return float(exponent.min()) if exponent is not None and exponent.size else None


def _readers(node: ir.Node) -> Iterator[ir.Node]:
    """The nodes that compute with a node's output, and the moves before them."""
    for user in node.outputs[0].consumers():
        yield user
        if has(user, Trait.NO_ARITHMETIC):
            yield from _readers(user)


def _sums(guard: ir.Node) -> Iterator[ir.Node]:
    """Sums and means that a guard reads, and the moves between: mean(x^2) in mean(x^2) + 1e-12."""
    for value in guard.inputs:
        node = value.producer() if value is not None else None
        way = []
        while node is not None and has(node, Trait.NO_ARITHMETIC) and (moved := moved_inputs(node)):
            way.append(node)
            source = node.inputs[moved[0]]
            node = source.producer() if source is not None else None
        if node is not None and has(node, Trait.ACCUMULATES) and node.op_type.startswith("Reduce"):
            yield from (*way, node)
