"""Nodes that accumulate many terms, whose sum may leave float16 while inputs and outputs fit.

    sum           sum of |x|                   ReduceSum, ReduceMean, ReduceL1, GlobalAveragePool
                  sum of x^2                   ReduceL2, ReduceSumSquare
    mean_square   mean of (x - mean of row)^2  LayerNormalization, InstanceNormalization, GroupNormalization
                  mean of x^2                  RMSNormalization
    logit         |scale * sum of q k|         Attention, for which ONNX defines it: ONNX Runtime keeps it in float16

No term of a sum or mean square is negative, so it bounds every partial sum, whatever order a kernel adds in. Pools over
windows and Softmax rows of images add up too few terms to leave float16 where their inputs do not; a CumSum's output is
its sum.

Bodies of If, Loop and Scan are not looked at: calibration does not see them (truehalf.conversion.decide, `unmeasured`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

import onnx_ir as ir

from truehalf.ir.arithmetic import reduced_axes
from truehalf.ir.facts import lengths_of
from truehalf.ir.slots import is_float32


class Term(Enum):
    """What is added up, from an element x of a row."""

    absolute = "|x|"
    square = "x^2"
    deviation = "(x - mean)^2"
    product = "x k"


@dataclass(frozen=True)
class Reduction:
    """A sum inside a node.

    Attributes:
        node: the operator.
        quantity: "sum", "mean_square" or "logit".
        source: FLOAT tensor whose elements are added up.
        term: what is added up.
        axes: of a sum; None: all.
        groups: of channels, each of which is a row; None: the tensor as it stands.
        terms: how many at a time; None: not known from the shapes.
    """

    node: ir.Node
    quantity: str
    source: ir.Value
    term: Term
    axes: tuple[int, ...] | None = None
    groups: int | None = None
    terms: int | None = None


_SUMS = {
    "ReduceSum": Term.absolute,
    "ReduceMean": Term.absolute,
    "ReduceL1": Term.absolute,
    "ReduceL2": Term.square,
    "ReduceSumSquare": Term.square,
}
_SPATIAL = 2  # first axis after batch and channels


def reductions(model: ir.Model) -> list[Reduction]:
    """The inner sums of the FLOAT nodes of the main graph, in graph order; a node without a sum has none.

    A reduction over axes that only a run knows counts as one over all of them, which gives no less.
    """
    return [found for node in model.graph for found in _reductions(node)]


def _reductions(node: ir.Node) -> Iterator[Reduction]:
    """The sum of a node; none of a node without one, or whose input has an unknown rank."""
    source = node.inputs[0] if node.inputs and node.domain == "" else None
    dims = lengths_of(source) if source is not None and is_float32(source) else None
    if source is None or dims is None:
        return
    rank, axis = len(dims), node.attributes.get_int("axis", -1)
    match node.op_type:
        case "LayerNormalization" | "RMSNormalization":
            axes = tuple(range(axis % max(rank, 1), rank))
            term = Term.deviation if node.op_type == "LayerNormalization" else Term.square
            yield Reduction(node, "mean_square", source, term, axes, terms=_terms(dims, axes))
        case "InstanceNormalization":
            axes = tuple(range(_SPATIAL, rank))
            yield Reduction(node, "mean_square", source, Term.deviation, axes, terms=_terms(dims, axes))
        case "GroupNormalization":
            groups, each = node.attributes.get_int("num_groups", 1), _terms(dims, range(1, rank))
            terms = None if each is None else each // groups
            yield Reduction(node, "mean_square", source, Term.deviation, (2,), groups, terms)
        case "GlobalAveragePool":
            axes = tuple(range(_SPATIAL, rank))
            yield Reduction(node, "sum", source, Term.absolute, axes, terms=_terms(dims, axes))
        case "Attention":
            yield Reduction(node, "logit", source, Term.product)
        case op_type if op_type in _SUMS and reduced_axes(node) != ():
            reduced = reduced_axes(node)
            terms = _terms(dims, range(rank) if reduced is None else reduced)
            yield Reduction(node, "sum", source, _SUMS[op_type], reduced, terms=terms)


def _terms(dims: Sequence[int | None], axes: Sequence[int]) -> int | None:
    """Count the elements along some axes; None if a length is not known."""
    lengths = [dims[axis] for axis in axes if -len(dims) <= axis < len(dims)]
    return math.prod(length for length in lengths if length is not None) if None not in lengths else None
