"""Phases: sines and cosines of arguments between which float16 leaves gaps, and the products that make them.

float16 holds an argument with an error up to 2^-11 of it, and a sine moves by as much as its argument, whatever periods
lie between. Beyond |x| = 10 that may exceed its limit, 0.005; from 2048 on neighbours are 2 apart, two thirds of pi.

    measured   as said in truehalf.conversion.rules.rounding.measured
    pattern    without ranges: Sin, Cos or Tan of a position times a frequency. Positions are what Range and CumSum
               write, integers that were cast, graph inputs; of constants the product of the largest counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import onnx_ir as ir

from truehalf.calibration.ranges_form import limit_of
from truehalf.conversion.rules.base import Decision, RuleContext, Verdict
from truehalf.conversion.rules.rounding.measured import decisions, is_measured
from truehalf.ir.facts import all_nodes, is_op
from truehalf.ir.ops import MOVES, Trait, has, moved_inputs
from truehalf.ir.slots import is_float32

_LARGEST = limit_of("phases") / 2.0**-11
_PRODUCTS = ("Mul", "Div", "MatMul", "Einsum")


def phases(context: RuleContext) -> Callable[[ir.Node, RuleContext], Decision | None]:
    """The rule for one model."""
    found = decisions("phases", context)
    patterns = {} if is_measured(context) else _of_positions(context)
    return lambda node, context: found.get(node.name or "") or patterns.get(node)


def _of_positions(context: RuleContext) -> dict[ir.Node, Decision]:
    found: dict[ir.Node, Decision] = {}
    for node in all_nodes(context.model):
        if not has(node, Trait.PERIODIC):
            continue
        members = dict.fromkeys([node])
        largest = _bound(node.inputs[0], context, members)
        if largest is not None and largest > _LARGEST and any(is_op(member, *_PRODUCTS) for member in members):
            reason = f"{node.name!r} is a {node.op_type} of positions times frequencies, between which float16 has gaps"
            for member in members:
                found.setdefault(member, Decision(Verdict.fp32, "phases", reason))
    return found


def _bound(value: ir.Value | None, context: RuleContext, members: dict[ir.Node, None]) -> float | None:
    """The largest |x| of a value made of positions and constants alone; None of any other. `members`: what makes it."""
    if value is None or not is_float32(value):
        return None
    if (facts := context.constant(value)) is not None:
        return facts.absmax
    node = value.producer()
    if node is None:
        return math.inf if value.is_graph_input() else None
    members[node] = None
    if is_op(node, "Range", "CumSum"):
        return math.inf
    if is_op(node, "Cast"):
        source = node.inputs[0]
        return math.inf if source is not None and source.dtype is not None and source.dtype.is_integer() else None
    if is_op(node, *_PRODUCTS):
        factors = [_bound(factor, context, members) for factor in node.inputs]
        known = [factor for factor in factors if factor is not None]
        return math.inf if len(known) == len(factors) and math.inf in known else _product(known, factors, node)
    if is_op(node, "Add", "Sub"):
        terms = [_bound(term, context, members) for term in node.inputs]
        return None if None in terms else sum(term for term in terms if term is not None)
    if node.op_type in MOVES and node.domain == "":
        moved = [_bound(node.inputs[index], context, members) for index in moved_inputs(node)]
        return None if None in moved else max((each for each in moved if each is not None), default=None)
    return None


def _product(known: list[float], factors: list[float | None], node: ir.Node) -> float | None:
    return math.prod(known) if len(known) == len(factors) and is_op(node, "Mul") else None
