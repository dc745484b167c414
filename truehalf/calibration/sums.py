"""Sums that operators make inside themselves, made once more beside the node: see truehalf.calibration.hazards."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from truehalf.calibration.hazards import AVERAGES_DILATED_FROM, Reduction, Term
from truehalf.calibration.instrument import LARGEST, InsertionPoint, Instrumented

_AXES_FROM = 13  # opset since when Squeeze and Unsqueeze read their axes
_ATTENTION_OUTPUTS = 4  # the last are its logits


def report_inner(graph: Instrumented, reduction: Reduction, suspect: bool) -> None:
    """Report the largest value of a sum inside a node as "inner".

    Behind the node itself, because only there all that it reads is known.

    Args:
        suspect: the source may hold NaN or Inf, which are left out.
    """
    written = next(str(value.name) for value in reduction.node.outputs if value.name)
    place = graph.after_producer(written)
    if reduction.term is Term.product:
        place.report("inner", "ReduceMax", place.flat(_logits(place, reduction, suspect)))
        return
    source = graph.value(str(reduction.source.name))
    if suspect:
        source = _numbers(place, source, -LARGEST if reduction.term in (Term.exp, Term.shifted_exp) else 0.0)
    rows = _rows(place, source, reduction)
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


def _numbers(place: InsertionPoint, value: ir.Value, nothing: float) -> ir.Value:
    """With `nothing` in place of NaN and Inf."""
    return place.node("Where", [place.is_number(value), value, place.graph.constant(nothing)])


def _logits(place: InsertionPoint, reduction: Reduction, suspect: bool) -> ir.Value:
    """|logits| of an Attention, without mask and softcap: its last output, of the same inputs."""
    node = reduction.node
    inputs = [None if value is None else place.graph.value(str(value.name)) for value in node.inputs]
    for index, value in enumerate(node.inputs if suspect else ()):
        read = inputs[index]
        if read is not None and (value is reduction.source or value in reduction.keys):
            inputs[index] = _numbers(place, read, 0.0)
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


def cumulative_sum(place: InsertionPoint, node: ir.Node, source: ir.Value | None, axis: int) -> ir.Value:
    """What a CumSum writes that rounds to float16 after each term: a Scan of s + x, from 0."""
    assert source is not None, "a CumSum reads a tensor"
    half, single = ir.TensorType(ir.DataType.FLOAT16), ir.TensorType(ir.DataType.FLOAT)
    before, term = ir.val("before", type=single), ir.val("term", type=single)
    total = ir.node("Add", [before, term])
    rounded = ir.node("Cast", [total.outputs[0]], {"to": int(half.dtype)})
    after = ir.node("Cast", [rounded.outputs[0]], {"to": int(single.dtype)})
    kept = ir.node("Identity", [before if node.attributes.get_int("exclusive", 0) else after.outputs[0]])
    steps = [total, rounded, after, kept]
    for name, each, dtype in zip(
        ("total", "half", "after", "kept"), steps, (single, half, single, single), strict=True
    ):
        each.outputs[0].name, each.outputs[0].type = name, dtype
    outputs = [after.outputs[0], kept.outputs[0]]
    body = ir.Graph([before, term], outputs, nodes=steps, opset_imports={"": place.graph.opset}, name="cumulative_sum")
    first = place.node("Gather", [source, place.graph.constant([0])], {"axis": axis})
    axes = {"axes": [axis]} if place.graph.opset < _AXES_FROM else None
    zeros = place.node("Sub", [first, first])
    start = place.node("Squeeze", [zeros, *([] if axes else [place.graph.constant([axis])])], axes)
    along, reverse = [axis], [node.attributes.get_int("reverse", 0) or 0]
    attributes: dict[str, int | Sequence[int] | ir.Graph] = {"body": body, "num_scan_inputs": 1}
    attributes |= {"scan_input_axes": along, "scan_input_directions": reverse}
    attributes |= {"scan_output_axes": along, "scan_output_directions": reverse}
    scanned = place.node("Scan", [start, source], attributes, 2).producer()
    assert scanned is not None, "it was just made"
    return scanned.outputs[1]
