"""Patterns that TensorRT rejects, computes wrongly or slowly, replaced by equal ones; one pass a file.

Each pass keeps the names of inputs, outputs and of what else stays, gives new nodes names in the scope of the node that
they replace, and leaves a place that it cannot replace by something equal as it is, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import onnx_ir as ir

from truehalf.errors import StageError
from truehalf.ir.inlining import inline_functions, other_versions
from truehalf.ir.normalize import infer_types, sort_nodes
from truehalf.ir.ready import check_required_inputs
from truehalf.repairs.passes.allowzero import allowzero
from truehalf.repairs.passes.bool_index import bool_index
from truehalf.repairs.passes.deduplicate_names import deduplicate_names
from truehalf.repairs.passes.fold_constants import fold_constants
from truehalf.repairs.passes.grid_sample_gather import grid_sample_gather
from truehalf.repairs.passes.infer_value_info import infer_value_info, untyped_values
from truehalf.repairs.passes.nonzero_topk import nonzero_topk
from truehalf.repairs.passes.range_to_shape import range_to_shape
from truehalf.repairs.passes.rope_constants import rope_constants
from truehalf.repairs.passes.squeeze_if import squeeze_if
from truehalf.repairs.passes.where_arithmetic import where_arithmetic
from truehalf.repairs.rewrite import Done

__all__ = ["PASSES", "Done", "RepairReport", "repair"]

PASSES: Mapping[str, Callable[[ir.Model], Done]] = {
    "allowzero": allowzero,
    "fold_constants": fold_constants,
    "squeeze_if": squeeze_if,
    "where_arithmetic": where_arithmetic,
    "range_to_shape": range_to_shape,
    "grid_sample_gather": grid_sample_gather,
    "rope_constants": rope_constants,
    "bool_index": bool_index,
    "nonzero_topk": nonzero_topk,
    "deduplicate_names": deduplicate_names,
    "infer_value_info": infer_value_info,
}


@dataclass(frozen=True)
class RepairReport:
    """What was done.

    Attributes:
        counts: by pass, in the order in which they ran, how many places it changed.
        refused: {pass, node, reason} of each place that has a pattern and was left as it is; of functions that cannot
            be inlined, so that no pass looks into them, pass is "functions".
    """

    counts: dict[str, int] = field(default_factory=dict)
    refused: list[dict[str, str]] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def repair(model: ir.Model, passes: Sequence[str]) -> RepairReport:
    """Run passes over a model, in place.

    Args:
        model: of any precision. It leaves without functions, which become nodes, sorted, with types inferred.
        passes: names of PASSES, in the order in which they run; none: the model is not touched.

    Raises:
        StageError: an unknown pass; a graph with a cycle; a node without what its operator requires.
    """
    if unknown := [name for name in passes if name not in PASSES]:
        raise StageError(
            "unknown-choice", f"repair: there is no pass {', '.join(unknown)}; expected some of {', '.join(PASSES)}"
        )
    report = RepairReport()
    if not passes:
        return report
    report.refused.extend(_inlined(model))
    sort_nodes(model)
    check_required_inputs(model)
    for graph in model.graphs():  # a body has none of its own, and its nodes are asked for their schema, too
        graph.opset_imports.update(model.graph.opset_imports)
    untyped = untyped_values(model)
    infer_types(model)
    for name in passes:
        done = PASSES[name](model)
        if name == "infer_value_info":  # the passes before it typed most
            done.changed = len(untyped) - len(untyped_values(model, among=untyped))
        report.counts[name] = done.changed
        report.refused.extend({"pass": name} | refusal for refusal in done.refused)
        if done.changed:
            infer_types(model)
    return report


def _inlined(model: ir.Model) -> list[dict[str, str]]:
    """Inline all functions, or leave all as they are and say why."""
    if not model.functions:
        return []
    try:
        if versions := other_versions(model):
            raise ValueError("; ".join(versions))
        inline_functions(model.clone())  # which may stop halfway
        inline_functions(model)
    except (ir.passes.PassError, RuntimeError, ValueError) as error:
        names = ", ".join(sorted(function.name for function in model.functions.values()))
        reason = f"the functions {names} were not looked into, because they cannot be inlined: "
        return [{"pass": "functions", "node": "", "reason": f"{reason}{error.__cause__ or error}"}]
    return []
