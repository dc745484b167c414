"""Sums that operators make inside themselves, made once more beside the node: see truehalf.calibration.hazards."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from truehalf.calibration.hazards import Reduction, Term
from truehalf.calibration.instrument import LARGEST, InsertionPoint, Instrumented

_ATTENTION_OUTPUTS = 4  # the last are its logits


def report_inner(graph: Instrumented, reduction: Reduction) -> None:
    """Report the largest value of a sum inside a node as "inner".

    Behind the node itself, because only there all that it reads is known.
    """
    place = graph.after(next(str(value.name) for value in reduction.node.outputs if value.name))
    if reduction.term is Term.product:
        total = _logits(place, reduction)
    else:
        rows = graph.value(str(reduction.source.name))
        if reduction.groups is not None:
            rows = place.node("Reshape", [rows, graph.constant([0, reduction.groups, -1])])
        combine = "ReduceMean" if reduction.quantity == "mean_square" else "ReduceSum"
        total = place.reduced(combine, _terms(place, rows, reduction), reduction.axes)
    place.report("inner", "ReduceMax", place.flat(total))


def _logits(place: InsertionPoint, reduction: Reduction) -> ir.Value:
    """|logits| of an Attention, without mask and softcap: its last output, of the same inputs."""
    node = reduction.node
    inputs = [None if value is None else place.graph.value(str(value.name)) for value in node.inputs]
    attributes = {name: attribute.value for name, attribute in node.attributes.items()} | {"qk_matmul_output_mode": 0}
    written = place.node("Attention", inputs, attributes, _ATTENTION_OUTPUTS).producer()
    assert written is not None, "it was just made"
    return place.node("Abs", [written.outputs[-1]])


def _terms(place: InsertionPoint, rows: ir.Value, reduction: Reduction) -> ir.Value:
    if reduction.term is Term.absolute:
        return place.node("Abs", [rows])
    if reduction.term is Term.deviation:
        rows = place.node("Sub", [rows, place.reduced("ReduceMean", rows, reduction.axes)])
    return place.node("Mul", [rows, rows])


def bounded(value: float) -> float | None:
    """What exceeds float32 counts as its largest number."""
    return None if np.isnan(value) or np.isneginf(value) else min(float(value), LARGEST)
