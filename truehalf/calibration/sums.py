"""Sums that operators make inside themselves, made once more beside the node: see truehalf.calibration.hazards."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from truehalf.calibration.hazards import AVERAGES_DILATED_FROM, Reduction, Term
from truehalf.calibration.instrument import LARGEST, InsertionPoint, Instrumented

_AXES_FROM = 13  # opset since when Squeeze and Unsqueeze read their axes
_ATTENTION_OUTPUTS = 4  # the last are its logits


def report_inner(graph: Instrumented, reduction: Reduction) -> None:
    """Report the largest value of a sum inside a node as "inner".

    Behind the node itself, because only there all that it reads is known.
    """
    written = next(str(value.name) for value in reduction.node.outputs if value.name)
    place = graph.after(written)
    if reduction.term is Term.product:
        place.report("inner", "ReduceMax", place.flat(_logits(place, reduction)))
        return
    rows = _rows(place, graph.value(str(reduction.source.name)), reduction)
    terms = _terms(place, rows, reduction)
    match (node := reduction.node).op_type:
        case "LRN":
            total = _over_channels(place, terms, reduction.terms or 1)
        case "AveragePool" | "LpPool":
            total = _over_windows(place, terms, reduction)
        case "CumSum":
            axis = [graph.value(str(value.name)) for value in node.inputs[1:] if value is not None]
            (total,) = place.copy(node, [terms, *axis])
        case _:
            combine = "ReduceMean" if reduction.quantity == "mean_square" else "ReduceSum"
            total = place.reduced(combine, terms, reduction.axes)
    place.report("inner", "ReduceMax", place.flat(total))


def _logits(place: InsertionPoint, reduction: Reduction) -> ir.Value:
    """|logits| of an Attention, without mask and softcap: its last output, of the same inputs."""
    node = reduction.node
    inputs = [None if value is None else place.graph.value(str(value.name)) for value in node.inputs]
    attributes = {name: attribute.value for name, attribute in node.attributes.items()} | {"qk_matmul_output_mode": 0}
    written = place.node("Attention", inputs, attributes, _ATTENTION_OUTPUTS).producer()
    assert written is not None, "it was just made"
    return place.node("Abs", [written.outputs[-1]])


def _over_windows(place: InsertionPoint, terms: ir.Value, reduction: Reduction) -> ir.Value:
    """Sums over the windows of a pool, padded with 0."""
    attributes = {name: each.value for name, each in reduction.node.attributes.items() if name != "p"}
    attributes |= {"count_include_pad": 1} if place.graph.opset >= 7 else {}
    if place.graph.opset < AVERAGES_DILATED_FROM:
        attributes.pop("dilations", None)
    mean = place.node("AveragePool", [terms], attributes)
    return place.node("Mul", [mean, place.graph.constant(float(reduction.terms or 1))])


def _over_channels(place: InsertionPoint, terms: ir.Value, size: int) -> ir.Value:
    """Sums of `size` neighbouring channels of [N, C, ...], fewer at the ends: averages over them, times `size`."""
    whole = place.node("Reshape", [terms, place.graph.constant([0, 0, -1])])
    axes = {"axes": [1]} if place.graph.opset < _AXES_FROM else None
    image = place.node("Unsqueeze", [whole, *([] if axes else [place.graph.constant([1])])], axes)
    before = (size - 1) // 2
    window: dict[str, int | Sequence[int]] = {
        "kernel_shape": [size, 1],
        "pads": [before, 0, size - 1 - before, 0],
        "count_include_pad": 1,
    }
    return place.node("Mul", [place.node("AveragePool", [image], window), place.graph.constant(float(size))])


def _rows(place: InsertionPoint, source: ir.Value, reduction: Reduction) -> ir.Value:
    if reduction.flatten is not None:
        return place.node("Flatten", [source], {"axis": reduction.flatten})
    if reduction.shape is not None:
        return place.node("Reshape", [source, place.graph.constant(list(reduction.shape))])
    return source


def _terms(place: InsertionPoint, rows: ir.Value, reduction: Reduction) -> ir.Value:
    match reduction.term:
        case Term.absolute:
            return place.node("Abs", [rows])
        case Term.exp:
            return place.node("Exp", [rows])
        case Term.shifted_exp:
            return place.node("Exp", [place.node("Sub", [rows, place.reduced("ReduceMax", rows, reduction.axes)])])
        case Term.power:
            exponent = place.graph.constant(float(reduction.exponent))
            return place.node("Pow", [place.node("Abs", [rows]), exponent])
        case Term.deviation:
            rows = place.node("Sub", [rows, place.reduced("ReduceMean", rows, reduction.axes)])
    return place.node("Mul", [rows, rows])


def bounded(value: float) -> float | None:
    """What exceeds float32 counts as its largest number."""
    return None if np.isnan(value) or np.isneginf(value) else min(float(value), LARGEST)
