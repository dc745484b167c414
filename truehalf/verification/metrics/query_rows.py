"""Outputs of queries, whose rows rounding may put in another order: which they are, and how far two files are apart."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import onnx_ir as ir

from truehalf.io_spec.in_file import SPEC_KEY, spec_inside
from truehalf.ir.facts import values_read
from truehalf.verification.metrics.tensors import query_outputs


def outputs_apart(
    reference: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray], queries: Collection[str] | None = None
) -> float:
    """Relative RMS difference of the worst output; 1 where its shape differs, Inf where it ceases to be finite.

    Args:
        queries: outputs [N, queries, values] whose rows are put in order of size first, number by number; None: all of
            three axes.
    """
    worst = 0.0
    for name, ours in reference.items():
        if name not in other or ours.dtype.kind != "f":
            continue
        if ours.shape != other[name].shape:
            worst = max(worst, 1.0)
            continue
        a, b = (each.astype(np.float64) for each in (ours, other[name]))
        if ours.ndim == 3 and (queries is None or name in queries):
            a, b = np.sort(a, axis=1), np.sort(b, axis=1)
        counts = np.isfinite(a)
        if not np.isfinite(b[counts]).all():
            return float("inf")
        size = float(np.linalg.norm(a[counts]))
        worst = max(worst, float(np.linalg.norm(b[counts] - a[counts])) / (size or 1.0))
    return worst


def rows_in_any_order(reference: ir.Model) -> list[str]:
    """Outputs whose rows are queries: those that the I/O spec declares, else those of three axes selected by a TopK."""
    if SPEC_KEY in reference.metadata_props:
        return query_outputs(spec_inside(reference))
    ranked = _selected_by_top_k(reference)
    outputs = [value for value in reference.graph.outputs if value.shape is not None and len(value.shape) == 3]
    return [str(value.name) for value in outputs if value in ranked]


def _selected_by_top_k(model: ir.Model) -> set[ir.Value]:
    """The values of the main graph that depend on a TopK."""
    found: set[ir.Value] = set()
    for node in model.graph:
        if node.op_type == "TopK" or any(value in found for value in values_read(node)):
            found.update(node.outputs)
    return found
