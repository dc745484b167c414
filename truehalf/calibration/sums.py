"""Nodes that accumulate many terms, whose sum may leave float16 while inputs and outputs fit: it is made once more
beside the node.

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

from dataclasses import dataclass
from typing import Literal

import numpy as np
import onnx_ir as ir

from truehalf.calibration.instrument import LARGEST, InsertionPoint, Instrumented
from truehalf.ir.arithmetic import reduced_axes
from truehalf.ir.facts import lengths_of
from truehalf.ir.slots import is_float32

_ATTENTION_OUTPUTS = 4  # the last are its logits
_SPATIAL = 2  # first axis after batch and channels
_SQUARES = ("ReduceL2", "ReduceSumSquare")
_SUMS = ("ReduceSum", "ReduceMean", "ReduceL1", *_SQUARES)


@dataclass(frozen=True)
class Reduction:
    """A sum inside a node.

    Attributes:
        node: the operator.
        quantity: "sum", "mean_square" or "logit".
        source: FLOAT tensor whose elements are added up.
        term: what is added up, from an element x of a row; of a logit nothing is to be known.
        axes: of a sum; None: all.
        groups: of channels, each of which is a row; None: the tensor as it stands.
    """

    node: ir.Node
    quantity: str
    source: ir.Value
    term: Literal["|x|", "x^2", "(x - mean)^2"] = "|x|"
    axes: tuple[int, ...] | None = None
    groups: int | None = None


def reductions(model: ir.Model) -> list[Reduction]:
    """The inner sums of the FLOAT nodes of the main graph, in graph order; a node without a sum has none.

    A reduction over axes that only a run knows counts as one over all of them, which gives no less.
    """
    return [found for node in model.graph if (found := _reduction(node)) is not None]


def _reduction(node: ir.Node) -> Reduction | None:
    """The sum of a node; None for a node without one, or whose input has an unknown rank."""
    source = node.inputs[0] if node.inputs and node.domain == "" else None
    dims = lengths_of(source) if source is not None and is_float32(source) else None
    if source is None or dims is None:
        return None
    rank = len(dims)
    match node.op_type:
        case "LayerNormalization" | "RMSNormalization":
            axes = tuple(range(node.attributes.get_int("axis", -1) % max(rank, 1), rank))
            term: Literal["x^2", "(x - mean)^2"] = "x^2" if node.op_type == "RMSNormalization" else "(x - mean)^2"
            return Reduction(node, "mean_square", source, term, axes)
        case "InstanceNormalization":
            return Reduction(node, "mean_square", source, "(x - mean)^2", tuple(range(_SPATIAL, rank)))
        case "GroupNormalization":
            groups = node.attributes.get_int("num_groups", 1)
            return Reduction(node, "mean_square", source, "(x - mean)^2", (2,), groups)
        case "GlobalAveragePool":
            return Reduction(node, "sum", source, "|x|", tuple(range(_SPATIAL, rank)))
        case "Attention":
            return Reduction(node, "logit", source)
        case op_type if op_type in _SUMS and (reduced := reduced_axes(node)) != ():
            return Reduction(node, "sum", source, "x^2" if op_type in _SQUARES else "|x|", reduced)
    return None


def report_inner(graph: Instrumented, reduction: Reduction) -> None:
    """Report the largest value of a sum inside a node as "inner".

    Behind the node itself, because only there all that it reads is known.
    """
    place = graph.after(next(str(value.name) for value in reduction.node.outputs if value.name))
    if reduction.quantity == "logit":
        total = _logits(place, reduction.node)
    else:
        rows = graph.value(str(reduction.source.name))
        if reduction.groups is not None:
            rows = place.node("Reshape", [rows, graph.constant([0, reduction.groups, -1])])
        combine = "ReduceMean" if reduction.quantity == "mean_square" else "ReduceSum"
        total = place.reduced(combine, _terms(place, rows, reduction), reduction.axes)
    place.report("inner", "ReduceMax", place.flat(total))


def _logits(place: InsertionPoint, node: ir.Node) -> ir.Value:
    """|logits| of an Attention, without mask and softcap: its last output, of the same inputs."""
    inputs = [None if value is None else place.graph.value(str(value.name)) for value in node.inputs]
    attributes = {name: attribute.value for name, attribute in node.attributes.items()} | {"qk_matmul_output_mode": 0}
    written = place.node("Attention", inputs, attributes, _ATTENTION_OUTPUTS).producer()
    assert written is not None, "it was just made"
    return place.node("Abs", [written.outputs[-1]])


def _terms(place: InsertionPoint, rows: ir.Value, reduction: Reduction) -> ir.Value:
    if reduction.term == "|x|":
        return place.node("Abs", [rows])
    if reduction.term == "(x - mean)^2":
        rows = place.node("Sub", [rows, place.reduced("ReduceMean", rows, reduction.axes)])
    return place.node("Mul", [rows, rows])


def bounded(value: float) -> float | None:
    """What exceeds float32 counts as its largest number."""
    return None if np.isnan(value) or np.isneginf(value) else min(float(value), LARGEST)
