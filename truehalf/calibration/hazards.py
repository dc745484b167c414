"""Nodes that accumulate many terms, whose sum may leave float16 while inputs and outputs fit.

    sum           sum of |x|                   ReduceSum, ReduceMean, ReduceL1, ReduceLogSum, CumSum, the average pools,
                                               LpNormalization, LpPool and GlobalLpPool with p = 1
                  sum of x^2                   ReduceL2, ReduceSumSquare, LpNormalization, LpPool and GlobalLpPool with
                                               p = 2, LRN (over neighbouring channels)
                  sum of |x|^p                 LpPool and GlobalLpPool with p > 2
                  sum of exp(x)                ReduceLogSumExp
                  sum of exp(x - max of row)   Softmax, LogSoftmax
    mean_square   mean of (x - mean of row)^2  LayerNormalization, InstanceNormalization, GroupNormalization,
                                               MeanVarianceNormalization
                  mean of x^2                  RMSNormalization
    logit         |scale * sum of q k|         Attention, for which ONNX defines it: ONNX Runtime keeps it in float16

No term of a sum or mean square is negative, so it bounds every partial sum, whatever order a kernel adds in.

Bodies of If, Loop and Scan are not looked at: calibration does not see them (truehalf.conversion.decide, `unmeasured`).
"""

from __future__ import annotations

import dataclasses
import math
from enum import Enum

import onnx_ir as ir

from truehalf.ir.arithmetic import reduced_axes
from truehalf.ir.facts import constant_of, lengths_of, opset_of
from truehalf.ir.slots import is_float32

_SOFTMAX_ROW_MIN = 65504  # a shorter row of exp(x - max) <= 1 accumulates to what float16 holds


class Term(Enum):
    """What is added up, from an element x of a row."""

    absolute = "|x|"
    square = "x^2"
    power = "|x|^p"
    exp = "exp(x)"
    shifted_exp = "exp(x - max)"
    deviation = "(x - mean)^2"
    product = "x k"


@dataclasses.dataclass(frozen=True)
class Reduction:
    """A sum inside a node.

    The rows that are added up: the source, flattened into a matrix at axis `flatten` or reshaped to `shape` (0 keeps
    an axis, -1 takes the rest) where one is given, reduced over `axes` (None: over all); but of CumSum, AveragePool,
    LpPool and LRN, which alone know their rows, what these make of the terms.

    Attributes:
        node: the operator.
        quantity: "sum", "mean_square" or "logit".
        source: FLOAT tensor whose elements are added up.
        term: what is added up.
        terms: how many at a time; None: not known from the shapes.
        exponent: p of `Term.power`.
    """

    node: ir.Node
    quantity: str
    source: ir.Value
    term: Term
    axes: tuple[int, ...] | None = None
    flatten: int | None = None
    shape: tuple[int, ...] | None = None
    terms: int | None = None
    exponent: int = 2


def reductions(model: ir.Model) -> list[Reduction]:
    """The inner sums of the FLOAT nodes of the main graph, in graph order; a node without a sum has none.

    A reduction over axes that only a run knows counts as one over all of them, which gives no less.
    """
    found: list[Reduction | None] = []
    for node in model.graph:
        source = node.inputs[0] if node.inputs and node.domain == "" else None
        if source is not None and is_float32(source):
            found.append(_reduction(node, source))
    return [reduction for reduction in found if reduction is not None]


# --- sums -------------------------------------------------------------------------------------------------------------

_REDUCES = {
    "ReduceSum": Term.absolute,
    "ReduceMean": Term.absolute,
    "ReduceL1": Term.absolute,
    "ReduceLogSum": Term.absolute,
    "ReduceL2": Term.square,
    "ReduceSumSquare": Term.square,
    "ReduceLogSumExp": Term.exp,
}
AVERAGES_DILATED_FROM = 19  # opset of AveragePool, which an LpPool is measured with; it is dilated from 18 on
_SPATIAL = 2  # first axis after batch and channels


def _reduction(node: ir.Node, source: ir.Value) -> Reduction | None:
    match node.op_type:
        case "LayerNormalization" | "RMSNormalization":
            term = Term.deviation if node.op_type == "LayerNormalization" else Term.square
            return _flattened(node, source, "mean_square", term, node.attributes.get_int("axis", -1))
        case "InstanceNormalization":
            return _flattened(node, source, "mean_square", Term.deviation, _SPATIAL)
        case "GroupNormalization":
            return _grouped(node, source, node.attributes.get_int("num_groups", 1))
        case "MeanVarianceNormalization":
            axes = tuple(node.attributes.get_ints("axes", (0, 2, 3)))
            return _over(node, source, "mean_square", Term.deviation, axes)
        case "GlobalAveragePool":
            return _flattened(node, source, "sum", Term.absolute, _SPATIAL)
        case "AveragePool":
            terms = math.prod(node.attributes.get_ints("kernel_shape", ()))
            return Reduction(node, "sum", source, Term.absolute, terms=terms)
        case "LpNormalization" | "GlobalLpPool" | "LpPool":
            return _norm(node, source, node.attributes.get_int("p", 2) or 2)
        case "LRN":
            terms = node.attributes.get_int("size", 1)
            return Reduction(node, "sum", source, Term.square, terms=terms)
        case "CumSum":
            return _over(node, source, "sum", Term.absolute, _constant_ints(node.inputs[1]))
        case "Softmax" | "LogSoftmax":
            return _softmax(node, source)
        case "Attention":
            return Reduction(node, "logit", source, Term.product)
        case op_type if op_type in _REDUCES:
            axes_or_none = reduced_axes(node)
            return None if axes_or_none == () else _over(node, source, "sum", _REDUCES[op_type], axes_or_none)
    return None


def _norm(node: ir.Node, source: ir.Value, p: int) -> Reduction | None:
    term = {1: Term.absolute, 2: Term.square}.get(p, Term.power)
    if node.op_type == "LpNormalization":
        return _over(node, source, "sum", term, (node.attributes.get_int("axis", -1) or 0,))
    if node.op_type == "GlobalLpPool":
        return dataclasses.replace(_flattened(node, source, "sum", term, _SPATIAL), exponent=p)
    if opset_of(node) < AVERAGES_DILATED_FROM and any(side > 1 for side in node.attributes.get_ints("dilations", ())):
        return None
    terms = math.prod(node.attributes.get_ints("kernel_shape", ()))
    return Reduction(node, "sum", source, term, terms=terms, exponent=p)


def _softmax(node: ir.Node, source: ir.Value) -> Reduction | None:
    """Below opset 13 everything from the axis on is one row."""
    if opset_of(node) < 13:
        found = _flattened(node, source, "sum", Term.shifted_exp, node.attributes.get_int("axis", 1))
    else:
        found = _over(node, source, "sum", Term.shifted_exp, (node.attributes.get_int("axis", -1),))
    return None if found.terms is not None and found.terms <= _SOFTMAX_ROW_MIN else found


def _constant_ints(value: ir.Value | None) -> tuple[int, ...] | None:
    constant = constant_of(value)
    return None if constant is None else tuple(int(number) for number in constant.ravel())


def _over(node: ir.Node, source: ir.Value, quantity: str, term: Term, axes: tuple[int, ...] | None) -> Reduction:
    dims = lengths_of(source)
    terms = _product(dims)
    if axes is not None:
        inside = dims is not None and all(-len(dims) <= axis < len(dims) for axis in axes)
        terms = _product([dims[axis] for axis in axes]) if dims is not None and inside else None
    return Reduction(node, quantity, source, term, axes=axes, terms=terms)


def _flattened(node: ir.Node, source: ir.Value, quantity: str, term: Term, axis: int) -> Reduction:
    dims = lengths_of(source)
    terms = _product(dims[axis:]) if dims is not None else None
    return Reduction(node, quantity, source, term, axes=(1,), flatten=axis, terms=terms)


def _grouped(node: ir.Node, source: ir.Value, groups: int) -> Reduction:
    dims = lengths_of(source)
    each = _product(dims[1:]) if dims is not None else None
    terms = each // groups if each is not None else None
    shape = (0, groups, -1 if terms is None else terms)
    return Reduction(node, "mean_square", source, Term.deviation, axes=(2,), shape=shape, terms=terms)


def _product(dims: list[int | None] | None) -> int | None:
    known = [dim for dim in dims or () if dim is not None]
    return math.prod(known) if dims is not None and len(known) == len(dims) else None
