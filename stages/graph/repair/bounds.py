"""What a float tensor is proven to lie within, whatever finite numbers the inputs hold.

    constants: their extremes        Sigmoid, Softplus' kin: their range        Clip, Min, Max: their limits
    casts from booleans: 0..1        moves: what they move                      Add, Sub, Mul, Neg, Abs: of bounds

Softmax is not among them: a row of -inf alone is NaN there. Where a bound depends on an operand that is not bounded,
nothing is proven.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from stages.graph.moves import moved_inputs
from stages.graph.repair.rewrite import constant_of

Bounds = tuple[float, float]

_RANGES: dict[str, Bounds] = {
    "Cos": (-1, 1), "Erf": (-1, 1), "HardSigmoid": (0, 1), "Sigmoid": (0, 1), "Sign": (-1, 1), "Sin": (-1, 1),
    "Softsign": (-1, 1), "Tanh": (-1, 1), "Atan": (-1.5708, 1.5708),
}  # fmt: skip
_DEPTH = 40


def bounds(value: ir.Value | None, depth: int = _DEPTH) -> Bounds | None:
    """The least and the largest that a float tensor can hold; None: not proven to be bounded, or not finite."""
    if value is None:
        return None
    array = constant_of(value)
    if array is not None:
        finite = array.dtype.kind in "fiub" and array.size > 0 and bool(np.isfinite(array).all())
        return (float(array.min()), float(array.max())) if finite else None
    node = value.producer()
    if node is None or node.domain != "" or depth == 0:
        return None
    found = _of_node(node, depth - 1)
    return found if found is not None and all(map(math.isfinite, found)) else None


def _of_node(node: ir.Node, depth: int) -> Bounds | None:
    if node.op_type in _RANGES:
        return _RANGES[node.op_type]
    if node.op_type == "Cast":
        source = node.inputs[0]
        return (0, 1) if source is not None and source.dtype == ir.DataType.BOOL else bounds(source, depth)
    if moved := moved_inputs(node):
        parts = [bounds(node.inputs[index], depth) for index in moved]
        zero = [(0.0, 0.0)] if node.op_type in ("Pad", "Trilu", "CenterCropPad") else []
        return _hull([*parts, *zero])
    if node.op_type in ("Clip", "Min", "Max", "Relu"):
        return _limited(node, depth)
    read = [bounds(operand, depth) for operand in node.inputs]
    known = [each for each in read if each is not None]
    if len(known) < len(read) or not known:
        return None
    (low, high), *more = known
    match node.op_type:
        case "Neg":
            return -high, -low
        case "Abs":
            return (0 if low <= 0 <= high else min(abs(low), abs(high))), max(abs(low), abs(high))
        case "Add":
            return low + more[0][0], high + more[0][1]
        case "Sub":
            return low - more[0][1], high - more[0][0]
        case "Mul":
            products = [a * b for a in (low, high) for b in more[0]]
            return min(products), max(products)
        case "Sqrt" if low >= 0:
            return math.sqrt(low), math.sqrt(high)
    return None


def _limited(node: ir.Node, depth: int) -> Bounds | None:
    """Of Clip, Min, Max and Relu, which bound what has no bounds."""
    read = [bounds(operand, depth) for operand in node.inputs]
    inside = read[0] if read else None
    if node.op_type == "Relu":
        return None if inside is None else (max(inside[0], 0), max(inside[1], 0))
    if node.op_type == "Clip":
        lows = [each[0] for each in (inside, *read[1:2]) if each is not None]
        highs = [each[1] for each in (inside, *read[2:3]) if each is not None]
        ends = (max(lows), min(highs)) if lows and highs else None
        return None if ends is None else (min(ends), max(ends))  # crossed: one of them is the result
    known = [each for each in read if each is not None]
    if len(known) < len(read) or not known:
        return None
    choose = min if node.op_type == "Min" else max
    return choose(low for low, _ in known), choose(high for _, high in known)


def _hull(parts: list[Bounds | None]) -> Bounds | None:
    known = [part for part in parts if part is not None]
    if len(known) < len(parts) or not known:
        return None
    return min(low for low, _ in known), max(high for _, high in known)
