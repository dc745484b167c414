"""Patterns that TensorRT rejects, computes wrongly or slowly, replaced by equal ones; one pass a file.

Each pass keeps the names of inputs, outputs and of what else stays, gives new nodes names in the scope of the node that
they replace, and leaves a place that it cannot replace by something equal as it is, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir

from stages.graph.normalize import infer_types, normalize
from stages.graph.repair.grid_sample_gather import grid_sample_gather
from stages.graph.repair.rewrite import Done
from stages.io import StageError

__all__ = ["PASSES", "Done", "RepairReport", "repair"]

PASSES: Mapping[str, Callable[[ir.Model], Done]] = {
    "grid_sample_gather": grid_sample_gather,
}


@dataclass(frozen=True)
class RepairReport:
    """What was done.

    Attributes:
        counts: by pass, in the order in which they ran, how many places it rewrote.
        refused: {pass, node, reason} of each place that has a pattern and was left as it is.
    """

    counts: dict[str, int] = field(default_factory=dict)
    refused: list[dict[str, str]] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return {"counts": self.counts, "refused": self.refused}


def repair(model: ir.Model, passes: Sequence[str]) -> RepairReport:
    """Run passes over a model, in place.

    Args:
        model: FP32 or mixed; nodes inside functions are not looked at. Its nodes are named, sorted and typed first.
        passes: names of PASSES, in order.

    Raises:
        StageError: a pass that there is not; a graph with a cycle.
    """
    if unknown := [name for name in passes if name not in PASSES]:
        raise StageError(f"repair: there is no pass {', '.join(unknown)}; expected some of {', '.join(PASSES)}")
    report = RepairReport()
    if passes:
        normalize(model)
    for name in passes:
        done = PASSES[name](model)
        report.counts[name] = done.changed
        report.refused.extend({"pass": name} | refusal for refusal in done.refused)
        if done.changed:
            infer_types(model)
    return report
