"""Variance as a difference of means: mean(x^2) - mean(x)^2 stays FP32, from the squares to the difference.

Where a mean is large beside its deviation s, the two terms agree in all but (s / mean)^2 of their size, and float16's
2^-11 of each term is left of the difference. Calibration may show no such row; another sample does: one of 24 files
gets another type from magika (wheel magika 1.0.3), whose LayerNorm, as Flax writes it, is of this form.

    Sub(A, B)    B = m^2, m = mean(x);  A = mean(x^2)
    v^2          Mul(v, v) or Pow(v, 2)
    mean(v)      ReduceMean(v), or ReduceSum(v) before Mul or Div by a constant; a Reshape or Squeeze may stand between
"""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from truehalf.conversion.rules.base import Decision, RuleContext, Verdict
from truehalf.ir.facts import all_nodes, constant_of, producer_of
from truehalf.ir.ops import Trait, with_trait

_VIEWS = with_trait(Trait.VIEW)
_MEANS = ("ReduceMean", "ReduceSum", "ReduceSumSquare", "GlobalAveragePool")


def variance(context: RuleContext) -> Callable[[ir.Node, RuleContext], Decision | None]:
    """Make the rule for one model."""
    found: dict[ir.Node, Decision] = {}
    for node in all_nodes(context.model):
        members = _difference_of_means(node)
        reason = f"{node.name!r} is a variance, the mean of squares less the square of the mean, which FP16 loses"
        for member in members:
            found.setdefault(member, Decision(Verdict.fp32, "variance", reason))
    return lambda node, context: found.get(node)


def _difference_of_means(node: ir.Node) -> list[ir.Node]:
    """Nodes of mean(x^2) - mean(x)^2 that ends in this node; empty if it is none."""
    if node.op_type != "Sub" or node.domain != "":
        return []
    of_squares = _mean(node.inputs[0])
    of_values = _square(node.inputs[1])
    if not of_squares or of_values is None:
        return []
    mean = _mean(of_values.inputs[0])
    last = of_squares[-1]
    square = None if last.op_type == "ReduceSumSquare" else _square(last.inputs[0])
    if not mean or (square is None and last.op_type != "ReduceSumSquare"):
        return []
    squared = last.inputs[0] if square is None else square.inputs[0]
    if squared is not mean[-1].inputs[0]:
        return []
    return [node, of_values, *of_squares, *mean, *([] if square is None else [square])]


def _square(value: ir.Value | None) -> ir.Node | None:
    """The node that makes a value as the square of another one."""
    node = producer_of(value, "Mul", "Pow")
    if node is None or node.op_type == "Mul":
        return node if node is not None and node.inputs[0] is node.inputs[1] else None
    exponent = constant_of(node.inputs[1])
    return node if exponent is not None and exponent.size == 1 and exponent.item() == 2 else None


def _mean(value: ir.Value | None) -> list[ir.Node]:
    """Nodes from a value back to the mean or sum that it is a multiple of, that one last; empty if it is none."""
    way: list[ir.Node] = []
    while (node := producer_of(value, *_MEANS, *_VIEWS, "Mul", "Div")) is not None:
        way.append(node)
        if node.op_type in _MEANS:
            return way
        value = _scaled(node) if node.op_type in ("Mul", "Div") else node.inputs[0]
    return []


def _scaled(node: ir.Node) -> ir.Value | None:
    """The value that a Mul or Div multiplies by a constant; None if it does not."""
    first, second = node.inputs
    if constant_of(second) is not None:
        return first
    return second if node.op_type == "Mul" and constant_of(first) is not None else None
