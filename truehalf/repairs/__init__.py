"""Patterns that TensorRT rejects, computes wrongly or slowly, replaced by equal ones; one pass a file.

Each pass keeps the names of inputs, outputs and of what else stays, gives new nodes names in the scope of the node that
they replace, and leaves a place that it cannot replace by something equal as it is, with the reason. Patterns are found
by walks and not by onnxscript's matcher: that comes only with torch, and does not report places that almost match.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

import onnx_ir as ir

from truehalf.errors import StageError
from truehalf.ir.inlining import InlineNamed
from truehalf.ir.normalize import InferTypes, OpsetsOfSubgraphs, SortNodes
from truehalf.ir.passes import Pass
from truehalf.ir.slots import check_required_inputs
from truehalf.json_values import JsonObject
from truehalf.repairs.passes.allowzero import AllowZero
from truehalf.repairs.passes.bool_index import BoolIndex
from truehalf.repairs.passes.deduplicate_names import DeduplicateNames
from truehalf.repairs.passes.fold_constants import FoldConstants
from truehalf.repairs.passes.grid_sample_gather import GridSampleGather
from truehalf.repairs.passes.infer_value_info import InferValueInfo, untyped_values
from truehalf.repairs.passes.rope_constants import RopeConstants
from truehalf.repairs.passes.squeeze_if import SqueezeIf

PASSES: Mapping[str, Pass] = {
    "allowzero": AllowZero(),
    "fold_constants": FoldConstants(),
    "squeeze_if": SqueezeIf(),
    "grid_sample_gather": GridSampleGather(),
    "rope_constants": RopeConstants(),
    "bool_index": BoolIndex(),
    "deduplicate_names": DeduplicateNames(),
    "infer_value_info": InferValueInfo(),
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

    def to_json(self) -> JsonObject:
        return asdict(self)


def check_passes(passes: Sequence[str]) -> None:
    """Raise StageError where one of them is not in PASSES."""
    if unknown := [name for name in passes if name not in PASSES]:
        message = f"repair: there is no pass {', '.join(unknown)}; expected some of {', '.join(PASSES)}"
        raise StageError("unknown-choice", message)


def repair(model: ir.Model, passes: Sequence[str]) -> RepairReport:
    """Run passes over a model, in place.

    Args:
        model: of any precision. It leaves without functions, which become nodes, sorted, with types inferred.
        passes: names of PASSES, in the order in which they run; none: the model is not touched.

    Raises:
        StageError: an unknown pass; a graph with a cycle; a node without what its operator requires.
    """
    check_passes(passes)
    report = RepairReport()
    if not passes:
        return report
    for refusal in InlineNamed()(model).refused:
        names = ", ".join(sorted(function.name for function in model.functions.values()))
        reason = f"the functions {names} were not looked into, because they cannot be inlined: {refusal['reason']}"
        report.refused.append({"pass": "functions", "node": "", "reason": reason})
    SortNodes()(model)
    check_required_inputs(model)
    OpsetsOfSubgraphs()(model)
    untyped = untyped_values(model)
    InferTypes()(model)
    for name in passes:
        done = PASSES[name](model)
        report.counts[name] = done.counts.total()
        if name == "infer_value_info":  # the passes before it typed most
            report.counts[name] = len(untyped) - len(untyped_values(model, among=untyped))
        report.refused.extend({"pass": name} | refusal for refusal in done.refused)
        if report.counts[name]:
            InferTypes()(model)
    return report
