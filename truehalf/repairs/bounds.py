"""Proven bounds of float tensors, and proof against NaN and Inf, for all finite values of the graph's inputs.

    inputs of the graph              finite, of any size: the one thing that is taken for granted
    constants, integers, booleans    their extremes, or those of their type
    moves                            the hull of what they move
    Sigmoid, Tanh, Sin, ...          their range, of what is finite: Sigmoid(NaN) is NaN
    Clip, Min, Max, Relu             what they leave of what is finite
    Add, Sub, Mul, Neg, Abs, ...     of the ends, rounded as the type rounds; nothing where that may overflow

After every other operator nothing is proven: MatMul and Conv add products that may overflow with both signs, Softmax of
a row of -inf is NaN, a divisor may be 0, Sqrt and Log of what is negative are NaN.
"""

from __future__ import annotations

import math
from collections.abc import Container

import numpy as np
import onnx_ir as ir

from truehalf.ir.facts import constant_of, is_op
from truehalf.ir.ops import Trait, has, moved_inputs, row_of
from truehalf.repairs.rewrite import FLOATS

Bounds = tuple[float, float]

_ANY = (-math.inf, math.inf)  # finite, of any size
_ROUNDING = 2.0**-20  # by which the Tanh, Erf, Sin of a runtime may exceed their range
_DEPTH = 40


def bounds(value: ir.Value | None, inputs: Container[ir.Value] = ()) -> Bounds | None:
    """The least and the largest that a float tensor can hold.

    Args:
        value: of a typed model.
        inputs: of the graph itself, not of a subgraph; they count as finite.

    Returns:
        Both finite. None: it is not proven to be bounded, or not proven to be never NaN.
    """
    found = _Reader(inputs).bounds(value, _DEPTH)
    return found if found is not None and _is_bounded(found) else None


class _Reader:
    """Looks at each value once; what is known of one is finite in every run, within its bounds."""

    def __init__(self, inputs: Container[ir.Value]) -> None:
        self._inputs = inputs
        self._known: dict[ir.Value, Bounds | None] = {}

    def bounds(self, value: ir.Value | None, depth: int) -> Bounds | None:
        if value is None:
            return None
        if value not in self._known:
            self._known[value] = self._of(value, depth)
        return self._known[value]

    def _of(self, value: ir.Value, depth: int) -> Bounds | None:
        if (array := constant_of(value)) is not None:
            known = array.dtype.kind in "fiub" and array.size > 0 and bool(np.isfinite(array).all())
            return (float(array.min()), float(array.max())) if known else None
        node = value.producer()
        if value.dtype not in FLOATS and value.dtype is not None:  # whatever was computed, it lies within its type
            is_number = value.dtype.is_integer()
            whole = (float(value.dtype.min), float(value.dtype.max)) if is_number else None
            whole = (0.0, 1.0) if value.dtype == ir.DataType.BOOL else whole
        else:
            whole = _ANY if value in self._inputs else None
        if node is None or node.domain != "" or depth == 0:
            return whole
        if moved := moved_inputs(node):
            return _hull(node, [self.bounds(node.inputs[index], depth - 1) for index in moved])
        if whole is not None:
            return whole
        read = [self.bounds(operand, depth - 1) for operand in node.inputs]
        found = _of_node(node, read)
        return None if found is None else _rounded(found, value.dtype)


def _is_bounded(bounds: Bounds) -> bool:
    return math.isfinite(bounds[0]) and math.isfinite(bounds[1])


def _hull(node: ir.Node, parts: list[Bounds | None]) -> Bounds | None:
    """Of a move: all that it moves, and the 0 that some put beside it."""
    known = [part for part in parts if part is not None] + [(0.0, 0.0)] * has(node, Trait.FILLS)
    if None in parts or not known:
        return None
    return min(low for low, _ in known), max(high for _, high in known)


def _rounded(found: Bounds, dtype: ir.DataType | None) -> Bounds | None:
    """The ends as the type rounds them; None where one exceeds its largest number, and so may be infinite."""
    if dtype is None or dtype not in FLOATS:
        return None
    with np.errstate(over="ignore"):
        low, high = (float(np.float64(end).astype(dtype.numpy())) for end in found)
    return (low, high) if _is_bounded((low, high)) or not _is_bounded(found) else None


def _of_node(node: ir.Node, read: list[Bounds | None]) -> Bounds | None:
    """Of what floats an operator gives, before they are rounded."""
    if has(node, Trait.LIMITS):
        return _limited(node, read)
    known = [each for each in read if each is not None]
    if len(known) < len(read) or not known:
        return None
    if (ends := row_of(node).bounds) is not None:
        slack = 0.0 if is_op(node, "HardSigmoid", "Sigmoid", "Sign") else _ROUNDING
        return ends[0] - slack, ends[1] + slack
    if not all(map(_is_bounded, known)):
        return None
    (low, high), (least, most) = known[0], known[-1]
    match node.op_type:
        case "Cast":
            return low, high
        case "Neg":
            return -high, -low
        case "Abs":
            return 0.0 if low <= 0 <= high else min(abs(low), abs(high)), max(abs(low), abs(high))
        case "Sqrt" if low >= 0:
            return math.sqrt(low), math.sqrt(high)
        case "Add":
            return low + least, high + most
        case "Sub":
            return low - most, high - least
        case "Mul":
            products = [one * other for one in (low, high) for other in (least, most)]
            return min(products), max(products)
    return None


def _limited(node: ir.Node, read: list[Bounds | None]) -> Bounds | None:
    """Of Clip, Min, Max and Relu, whose limits may bound what has no bounds."""
    if node.op_type == "Clip":
        read = _clip_limits(node, read)
    if node.op_type == "Relu":
        read = [*read, (0.0, 0.0)]
    known = [each for each in read if each is not None]
    if len(known) < len(read) or not known:
        return None
    lows, highs = [low for low, _ in known], [high for _, high in known]
    match node.op_type:
        case "Min":
            return min(lows), min(highs)
        case "Max" | "Relu":
            return max(lows), max(highs)
    # with limits that cross, one runtime gives the one and another the other
    either = [min(max(each[0], each[1]), each[2]) for each in (lows, highs)]
    either += [max(min(each[0], each[2]), each[1]) for each in (lows, highs)]
    return min(either), max(either)


def _clip_limits(node: ir.Node, read: list[Bounds | None]) -> list[Bounds | None]:
    """[x, least, largest]; what is not given limits nothing."""
    limits: list[Bounds | None] = []
    for position, (name, nothing) in enumerate((("min", -math.inf), ("max", math.inf)), start=1):
        given = position < len(node.inputs) and node.inputs[position] is not None
        attribute = node.attributes.get_float(name, nothing)
        limits.append(read[position] if given else (attribute, attribute))
    return [read[0], *limits]
