"""Sums that operators make inside themselves, made once more beside the node: see truehalf.calibration.hazards."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from truehalf.calibration.hazards import Reduction, Term
from truehalf.calibration.instrument import LARGEST, InsertionPoint, Instrumented


def report_inner(graph: Instrumented, reduction: Reduction, suspect: bool) -> None:
    """Report the largest value of a sum inside a node as "inner".

    Behind the node itself, because only there all that it reads is known.

    Args:
        suspect: the source may hold NaN or Inf, which are left out.
    """
    written = next(str(value.name) for value in reduction.node.outputs if value.name)
    place = graph.after_producer(written)
    source = graph.value(str(reduction.source.name))
    if suspect:
        nothing = graph.constant(-LARGEST if reduction.term in (Term.exp, Term.shifted_exp) else 0.0)
        source = place.node("Where", [place.is_number(source), source, nothing])
    rows = _rows(place, source, reduction)
    terms = _terms(place, rows, reduction)
    if reduction.by_node:
        node = reduction.node
        inputs = [terms, *(graph.value(str(value.name)) for value in node.inputs[1:] if value is not None)]
        attributes = {name: attribute.value for name, attribute in node.attributes.items()}
        if node.op_type == "AveragePool":
            attributes |= {"count_include_pad": 1} if graph.opset >= 7 else {}
        total = place.node(node.op_type, inputs, attributes)
        if node.op_type == "AveragePool":
            total = place.node("Mul", [total, graph.constant(float(reduction.terms or 1))])
    else:
        combine = "ReduceMean" if reduction.quantity == "mean_square" else "ReduceSum"
        total = place.reduced(combine, terms, reduction.axes)
    place.report("inner", "ReduceMax", place.flat(total))


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
        case Term.deviation:
            rows = place.node("Sub", [rows, place.reduced("ReduceMean", rows, reduction.axes)])
    return place.node("Mul", [rows, rows])


def bounded(value: float) -> float | None:
    """What exceeds float32 counts as its largest number."""
    return None if np.isnan(value) or np.isneginf(value) else min(float(value), LARGEST)
