"""Cancellation: differences far below their operands, in front of a logarithm, a root or a quotient, or as they are.

float16 holds x and y with errors up to 2^-11 |x| and 2^-11 |y|; their difference z is exact or nearly, so it has

    error(z) / |z| <= 2^-11 (|x| + |y|) / |z|

which exceeds 2^-7 where |x| + |y| > 16 |z|. The Sub alone in FP32 changes nothing: x and y must come to it as
FP32, from where they were computed. In normalizations the difference is from the mean of a row. A product with weights
is such a difference, too, in front of a logarithm, a divisor or a root: rounded, x and w leave an error of up to
2^-11 sum |w x| in the sum of w x, beyond 2^-7 where that exceeds 16 times the sum, as in quiet bins of a spectrum.
Wherever it goes on to, a sum or a product is one where 16 times its largest result is less than

    sqrt(sum (w x)^2)    the terms' roundings have either sign    e.g. differences between pixels, by weights

    measured   as said in truehalf.conversion.rules.rounding.measured; a comparison of what stays FP32 for its
               difference is the sign of that, and stays so, too
    pattern    without ranges: mean(x^2) - mean(x)^2, whose operands are 1 + mean^2 / variance times the result
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx_ir as ir

from truehalf.conversion.rules.base import Decision, RuleContext, Verdict
from truehalf.conversion.rules.rounding.measured import decisions, is_measured
from truehalf.ir.facts import all_nodes, constant_of, is_op
from truehalf.ir.ops import Trait, has

_MEANS = ("ReduceMean", "GlobalAveragePool")


def cancellation(context: RuleContext) -> Callable[[ir.Node, RuleContext], Decision | None]:
    """The rule for one model."""
    found = decisions("cancellation", context)
    patterns = {} if is_measured(context) else _variances(context.model)
    return lambda node, context: found.get(node.name or "") or patterns.get(node) or _of_compared(node, found)


def _of_compared(node: ir.Node, found: Mapping[str, Decision]) -> Decision | None:
    """That of what a comparison compares; None where any of it has none, or it is no comparison."""
    computed = [value for value in node.inputs if value is not None and constant_of(value) is None]
    makers = [value.producer() for value in computed] if has(node, Trait.COMPARES) else []
    decided = [None if maker is None else found.get(maker.name or "") for maker in makers]
    return decided[0] if decided and all(decided) else None


def _variances(model: ir.Model) -> dict[ir.Node, Decision]:
    found: dict[ir.Node, Decision] = {}
    for node in all_nodes(model):
        members = _variance(node) if is_op(node, "Sub") else []
        reason = f"{node.name!r} subtracts a squared mean from the mean of squares, which may be nearly the same"
        for member in members:
            found.setdefault(member, Decision(Verdict.fp32, "cancellation", reason))
    return found


def _variance(node: ir.Node) -> list[ir.Node]:
    """The nodes of mean(x^2) - mean(x)^2; empty where it is something else."""
    of_squares, squares = _through(node.inputs[0])
    square, moves = _through(node.inputs[1])
    if not is_op(of_squares, *_MEANS) or square is None:
        return []
    inner, more = _through(of_squares.inputs[0])
    mean, again = _through(_squared(square))
    if inner is None or not is_op(mean, *_MEANS):
        return []
    source = _squared(inner)
    if source is None or source is not mean.inputs[0]:
        return []
    return [node, *squares, of_squares, *more, inner, *moves, square, *again, mean]


def _through(value: ir.Value | None) -> tuple[ir.Node | None, list[ir.Node]]:
    """The node behind moves, and these."""
    moves: list[ir.Node] = []
    node = value.producer() if value is not None else None
    while node is not None and has(node, Trait.VIEW) and node.inputs[0] is not None:
        moves.append(node)
        node = node.inputs[0].producer()
    return node, moves


def _squared(node: ir.Node) -> ir.Value | None:
    """x of x * x and x^2."""
    if is_op(node, "Mul") and node.inputs[0] is node.inputs[1]:
        return node.inputs[0]
    exponent = constant_of(node.inputs[1]) if is_op(node, "Pow") else None
    return node.inputs[0] if exponent is not None and bool((exponent == 2).all()) else None
