"""Sizes of the terms that a node adds up, to be held against its result: is that far below them, it cancels.

    Add, Sub, Sum, Mod           max |x| of each term; or sqrt(sum of their squares) of all that sums in a row add up
    BatchNormalization           max |x| times the largest gain
    ReduceSum, ReduceMean        max |x| times sqrt(n), times 1 / sqrt(n), of n elements
    MatMul, Gemm, Einsum,        max |x| times the largest norm sqrt(sum of w^2) of the weights of one result; times
    Conv, ConvTranspose          max |y| sqrt(n) where both are computed; max |bias| beside it

Roundings have either sign, so that a sum of n terms has an error of 2^-12 times the root of their squares' sum, and not
of their sum: else every wide product of data around 0 would be suspect. It is a bound, which only says where to look.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from truehalf.ir.arithmetic import reduction_depth
from truehalf.ir.facts import constant_of, is_op
from truehalf.ir.ops import Trait, has

AbsMax = Callable[[ir.Value], float | None]
_CHAIN_MAX = 16  # sums


def terms_of(node: ir.Node, absmax: AbsMax) -> list[float | None]:
    """The sizes, None where one is not known; none of a node that adds nothing up.

    Args:
        absmax: largest |x| that was measured of a value; None: it is not known.
    """
    if not has(node, Trait.CANCELS) or absmax(node.outputs[0]) is None:
        return []
    first = node.inputs[0] if node.inputs else None
    match node.op_type:
        case "Add" | "Sub" | "Sum":
            terms = [absmax(value) for value in node.inputs if value is not None]
            known = [term for term in terms if term is not None]
            return [max(sum(known), _of_chain(node, absmax))] if len(known) == len(terms) else []
        case "Mod" if first is not None:
            return [absmax(first)]
        case "BatchNormalization" if first is not None and len(node.outputs) == 1:
            return [_scaled(absmax(first), _gain(node))]
        case "ReduceSum" | "ReduceMean" if first is not None:
            root = math.sqrt(reduction_depth(node))
            return [_scaled(absmax(first), root if node.op_type == "ReduceSum" else 1 / root)]
    return _of_product(node, absmax) if has(node, Trait.PRODUCT) else []


def _of_chain(node: ir.Node, absmax: AbsMax) -> float:
    """Root of the squares of the terms of a sum, each sum among them taken apart."""
    squares, waiting, left = 0.0, [node], _CHAIN_MAX
    while waiting:
        for value in waiting.pop().inputs:
            made_by = value.producer() if value is not None else None
            if left and made_by is not None and is_op(made_by, "Add", "Sub", "Sum"):
                waiting.append(made_by)
                left -= 1
            elif value is not None:
                squares += (absmax(value) or 0.0) ** 2
    return math.sqrt(squares)


def _gain(node: ir.Node) -> float | None:
    scale, variance = constant_of(node.inputs[1]), constant_of(node.inputs[4])
    if scale is None or variance is None:
        return None
    gain = np.abs(scale) / np.sqrt(np.maximum(variance, 0) + (node.attributes.get_float("epsilon", 1e-5) or 0))
    return float(gain.max(initial=0.0))


def _of_product(node: ir.Node, absmax: AbsMax) -> list[float | None]:
    factors = list(node.inputs[:2])
    sizes = [absmax(value) if value is not None and constant_of(value) is None else None for value in factors]
    weights = [index for index, value in enumerate(factors) if constant_of(value) is not None]
    if (len(node.inputs) > 2 and is_op(node, "Einsum")) or len(factors) < 2 or len(weights) > 1:
        return []
    if weights:
        size = _scaled(sizes[1 - weights[0]], _norm(node, weights[0]))
    else:
        size = _scaled(_scaled(*sizes), math.sqrt(reduction_depth(node)))
    alpha = node.attributes.get_float("alpha", 1.0) if is_op(node, "Gemm") else 1.0
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    return [_scaled(size, abs(alpha or 0.0)), *([absmax(bias)] if bias is not None else [])]


def _norm(node: ir.Node, index: int) -> float:
    """Of constant weights, the largest root of the squares that go into one result."""
    weights = constant_of(node.inputs[index])
    assert weights is not None, "asked for weights alone"
    match node.op_type:
        case "Conv":
            axes = tuple(range(1, weights.ndim))
        case "ConvTranspose":
            axes = (0, *range(2, weights.ndim))
        case "Einsum":
            read, _, written = node.attributes["equation"].as_string().replace(" ", "").partition("->")
            letters = read.split(",")[index]
            dotted = "." in letters or not written
            axes = () if dotted else tuple(axis for axis, each in enumerate(letters) if each not in written)
        case _:
            transposed = node.attributes.get_int("transA" if index == 0 else "transB", 0)
            axis = -2 if (index == 0) == bool(transposed) else -1
            axes = (axis if weights.ndim > 1 else -1,)
    return float(np.sqrt(np.square(weights, dtype=np.float32).sum(axis=axes)).max(initial=0.0))


def _scaled(size: float | None, factor: float | None) -> float | None:
    return None if size is None or factor is None else size * factor
