"""Proven bounds of float tensors, and proof against NaN, for all finite values of the graph's inputs.

    inputs of the graph              finite, of any size: the one thing that is taken for granted
    constants, integers, booleans    their extremes, or those of their type
    moves                            the hull of what they move
    Add, Sub, Mul, Div, Sqrt, ...    of the ends, rounded as the type rounds; beyond its largest number, infinite
    Sigmoid, Tanh, Sin, Clip, ...    their range, but only of what is never NaN: Sigmoid(NaN) is NaN

Three facts go together: the least and the largest value, and whether all values are finite. An unbounded input is
finite, Exp of it is not, and Sin of that may be NaN. NaN is possible, and nothing is proven, after inf - inf, 0 * inf,
a divisor that may be 0, Log and Sqrt of what may be negative, Sin and Cos of what may be infinite, and after every
operator that is not named here: MatMul and Conv add products that may overflow with both signs, Softmax of a row of
-inf is NaN.
"""

from __future__ import annotations

import math
from collections.abc import Container
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from truehalf.ir.facts import constant_of, is_op
from truehalf.ir.ops import Trait, has, moved_inputs, row_of
from truehalf.repairs.rewrite import FLOATS

Bounds = tuple[float, float]

_INF = math.inf
_ROUNDING = 2.0**-20  # by which the Tanh, Erf, Sin of a runtime may exceed their range
_LEAST_NORMAL = 2.0**-126  # float32's least normal number; a device may take a smaller one for 0
_DEPTH = 40


@dataclass(frozen=True)
class _Fact:
    """Of values that are never NaN: low <= v <= high, and whether all of them are finite."""

    low: float
    high: float
    finite: bool = True

    @property
    def bounded(self) -> bool:
        return math.isfinite(self.low) and math.isfinite(self.high)

    def may_be(self, number: float) -> bool:
        return self.low <= number <= self.high and not (self.finite and math.isinf(number))


def bounds(value: ir.Value | None, inputs: Container[ir.Value] = ()) -> Bounds | None:
    """The least and the largest that a float tensor can hold.

    Args:
        value: of a typed model.
        inputs: of the graph itself, not of a subgraph; they count as finite.

    Returns:
        Both finite. None: it is not proven to be bounded, or not proven to be never NaN.
    """
    fact = _Reader(inputs).fact(value, _DEPTH)
    return (fact.low, fact.high) if fact is not None and fact.bounded and fact.finite else None


class _Reader:
    """Looks at each value once."""

    def __init__(self, inputs: Container[ir.Value]) -> None:
        self._inputs = inputs
        self._known: dict[ir.Value, _Fact | None] = {}

    def fact(self, value: ir.Value | None, depth: int) -> _Fact | None:
        if value is None:
            return None
        if value not in self._known:
            self._known[value] = self._of(value, depth)
        return self._known[value]

    def _of(self, value: ir.Value, depth: int) -> _Fact | None:
        if (array := constant_of(value)) is not None:
            return _of_array(array)
        whole = _of_type(value.dtype)
        if value in self._inputs:
            return whole
        node = value.producer()
        if node is None or node.domain != "" or depth == 0:
            return whole if whole is not None and whole.bounded else None
        if moved := moved_inputs(node):
            return _hull(node, [self.fact(node.inputs[index], depth - 1) for index in moved])
        if whole is None or whole.bounded:
            return whole  # integers and booleans: whatever was computed, it lies within their type
        read = [self.fact(operand, depth - 1) for operand in node.inputs]
        found = _of_node(node, read)
        return None if found is None else _rounded(found, value.dtype)


def _of_array(array: np.ndarray[Any, Any]) -> _Fact | None:
    if array.dtype.kind not in "fiub" or array.size == 0 or bool(np.isnan(array).any()):
        return None
    return _Fact(float(array.min()), float(array.max()), bool(np.isfinite(array).all()))


def _of_type(dtype: ir.DataType | None) -> _Fact | None:
    """All finite numbers of a type."""
    if dtype is None or dtype == ir.DataType.BOOL:
        return None if dtype is None else _Fact(0, 1)
    if dtype in FLOATS:
        return _Fact(-_INF, _INF)
    return _Fact(float(dtype.min), float(dtype.max)) if dtype.is_integer() else None


def _known(facts: list[_Fact | None]) -> list[_Fact]:
    """All of them; none where one is not known."""
    known = [fact for fact in facts if fact is not None]
    return known if len(known) == len(facts) else []


def _hull(node: ir.Node, parts: list[_Fact | None]) -> _Fact | None:
    """Of a move: all that it moves, and the 0 that some put beside it."""
    if has(node, Trait.FILLS):
        parts = [*parts, _Fact(0, 0)]
    if not (known := _known(parts)):
        return None
    return _Fact(min(part.low for part in known), max(part.high for part in known), all(part.finite for part in known))


def _rounded(fact: _Fact, dtype: ir.DataType | None) -> _Fact | None:
    """The ends as the type rounds them; what exceeds its largest number may be infinite."""
    if dtype not in FLOATS or math.isnan(fact.low) or math.isnan(fact.high):
        return None
    with np.errstate(over="ignore"):
        low, high = (float(np.float64(end).astype(dtype.numpy())) for end in (fact.low, fact.high))
    overflows = (math.isfinite(fact.low) and math.isinf(low)) or (math.isfinite(fact.high) and math.isinf(high))
    return _Fact(low, high, fact.finite and not overflows)


def _of_node(node: ir.Node, read: list[_Fact | None]) -> _Fact | None:
    """Of what floats an operator gives, before they are rounded; None: NaN is possible, or nothing is known."""
    if has(node, Trait.LIMITS):
        return _limited(node, read)
    if not (known := _known(read)):
        return None
    x, *more = known
    if (ends := row_of(node).bounds) is not None:
        slack = 0.0 if is_op(node, "HardSigmoid", "Sigmoid", "Sign") else _ROUNDING
        return _Fact(ends[0] - slack, ends[1] + slack) if x.finite or has(node, Trait.AT_INFINITY) else None
    match node.op_type:
        case "Cast":  # of the largest float64 to float32, of the largest float32 to float16: infinite
            return _Fact(x.low, x.high, x.bounded)
        case "Neg":
            return _Fact(-x.high, -x.low, x.finite)
        case "Abs":
            least = 0.0 if x.low <= 0 <= x.high else min(abs(x.low), abs(x.high))
            return _Fact(least, max(abs(x.low), abs(x.high)), x.finite)
        case "Floor" | "Ceil":
            whole = np.floor if node.op_type == "Floor" else np.ceil
            return _Fact(float(whole(x.low)), float(whole(x.high)), x.finite)
        case "Add":
            return _sum(x, more[0])
        case "Sub":
            return _sum(x, _Fact(-more[0].high, -more[0].low, more[0].finite))
        case "Mul":
            return _product(x, more[0])
        case "Div":
            return _quotient(x, more[0], node.inputs[1])
        case "Reciprocal":
            return _quotient(_Fact(1, 1), x, node.inputs[0])
        case "Sqrt" if x.low >= 0:
            return _Fact(math.sqrt(x.low), math.sqrt(x.high), x.finite)
        case "Exp":
            high = math.exp(x.high) if x.high < 700 else _INF  # float64 ends at exp(709.8)
            return _loose(_Fact(0, high, x.finite and math.isfinite(high)))
        case "Log" if x.low >= 0:
            low = math.log(x.low) if x.low >= _LEAST_NORMAL else -_INF
            high = math.log(x.high) if 0 < x.high < _INF else x.high or -_INF
            return _loose(_Fact(low, high, x.finite and x.low >= _LEAST_NORMAL))
    return None


def _sum(a: _Fact, b: _Fact) -> _Fact | None:
    if (a.may_be(_INF) and b.may_be(-_INF)) or (a.may_be(-_INF) and b.may_be(_INF)):
        return None
    return _Fact(a.low + b.low, a.high + b.high, a.bounded and b.bounded)


def _product(a: _Fact, b: _Fact) -> _Fact | None:
    if any(one.may_be(0) and (other.may_be(_INF) or other.may_be(-_INF)) for one, other in ((a, b), (b, a))):
        return None
    ends = [0.0 if 0 in (left, right) else left * right for left in (a.low, a.high) for right in (b.low, b.high)]
    return _Fact(min(ends), max(ends), a.bounded and b.bounded)


def _quotient(a: _Fact, b: _Fact, divisor: ir.Value | None) -> _Fact | None:
    """Of a divisor with a sign that is no subnormal, which a device may take for 0."""
    if divisor is None or divisor.dtype not in FLOATS or not (a.finite or b.finite):
        return None
    least_normal = float(divisor.dtype.tiny)
    if b.low < least_normal and b.high > -least_normal:
        return None
    if not a.finite:
        return _Fact(-_INF, _INF, False)
    low, high = (0.0 if math.isinf(end) else 1 / end for end in (b.high, b.low))
    found = _product(a, _Fact(low, high))
    return None if found is None else _loose(found)


def _loose(fact: _Fact) -> _Fact:
    """Wider by what a runtime's rounding may differ from ours; a sign stays."""
    low, high = fact.low, fact.high
    slack = [0.0 if math.isinf(end) else _ROUNDING * abs(end) for end in (low, high)]
    return _Fact(low - slack[0], high + slack[1], fact.finite)


def _limited(node: ir.Node, read: list[_Fact | None]) -> _Fact | None:
    """Of Clip, Min, Max and Relu, whose limits may bound what has no bounds."""
    if node.op_type == "Clip":
        read = _clip_limits(node, read)
    if node.op_type == "Relu":
        read = [*read, _Fact(0, 0)]
    if not (known := _known(read)):
        return None
    lows, highs = [each.low for each in known], [each.high for each in known]
    match node.op_type:
        case "Min":
            low, high = min(lows), min(highs)
        case "Max" | "Relu":
            low, high = max(lows), max(highs)
        case _:  # with limits that cross, one runtime gives the one and another the other
            either = [min(max(each[0], each[1]), each[2]) for each in (lows, highs)]
            either += [max(min(each[0], each[2]), each[1]) for each in (lows, highs)]
            low, high = min(either), max(either)
    bounded = math.isfinite(low) and math.isfinite(high)
    return _Fact(low, high, bounded or all(each.finite for each in known))


def _clip_limits(node: ir.Node, read: list[_Fact | None]) -> list[_Fact | None]:
    """[x, least, largest]; what is not given limits nothing."""
    limits: list[_Fact | None] = []
    for position, (name, nothing) in enumerate((("min", -_INF), ("max", _INF)), start=1):
        given = position < len(node.inputs) and node.inputs[position] is not None
        attribute = node.attributes.get_float(name, nothing)
        limits.append(read[position] if given else _Fact(attribute, attribute))
    return [read[0], *limits]
