"""Patterns that TensorRT refuses, computes wrongly or runs slowly: lint finds them, repair replaces some by equal ones.

A pattern is one object with `find` and, where it has one, `fix`; each file holds a small family of them. Those that are
fixed keep the names of inputs, outputs and of what else stays; new nodes are named in the scope of the node that they
replace, and a place that cannot be replaced by something equal is left as it is, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field

import onnx_ir as ir

from truehalf.errors import StageError
from truehalf.ir.facts import all_nodes
from truehalf.ir.normalize import InferTypes, OpsetsOfSubgraphs
from truehalf.ir.passes import Done
from truehalf.ir.slots import check_required_inputs
from truehalf.json_values import JsonObject
from truehalf.patterns import (
    attention,
    bool_index,
    control_flow,
    data_sizes,
    fold,
    grid_sample,
    interface,
    layer_norm,
    numbers,
    operators,
    selection,
    wrong_engines,
)
from truehalf.patterns.frame import SEVERITIES, Finding, Match, Pattern, Subject
from truehalf.patterns.ignoring import parse_ignores, split_ignored
from truehalf.patterns.rewrite import Writer
from truehalf.patterns.support import parse_version

__all__ = ["PASSES", "RULES", "SEVERITIES", "Finding", "Pattern", "RepairReport", "check_passes", "lint", "repair"]

_FAMILIES = (
    *(operators, control_flow, fold, data_sizes, bool_index, selection, grid_sample, layer_norm, attention),
    *(numbers, interface, wrong_engines),
)
RULES: dict[str, Pattern] = {pattern.id: pattern for family in _FAMILIES for pattern in family.PATTERNS}
PASSES: Mapping[str, Callable[[Writer], None]] = {
    "allowzero": data_sizes.ReshapeAllowzero().fix,
    "fold_constants": fold.fold_constants,
    "grid_sample_gather": grid_sample.GridSample().fix,
    "bool_index": bool_index.BoolIndex().fix,
    "deduplicate_names": interface.EmptyNodeName().fix,
}


def lint(
    model: ir.Model,
    *,
    tensorrt: str | None = None,
    ignore: Sequence[str] = (),
    plugin_ops: Collection[str] = (),
    inputs: Sequence[str] = (),
) -> list[Finding]:
    """Find the patterns in a model, errors first, then in graph order.

    Args:
        model: sorted, typed as far as onnx can infer, its functions inlined, as as_ir gives it; it is left as it is. On
            a copy, what no input changes is folded: a raw export has the findings of its folded twin.
        tensorrt: "10", "11.4", ...: the version that is to build it; by default it is checked for 10.16 and 11.4.
        ignore: "rule", or "rule@<regular expression on the node's name or scope>".
        plugin_ops: operator types that plugins bring along, as Op or domain::Op.
        inputs: names of the inputs that the model was exported with, to find those that it lost.

    Raises:
        StageError: when the version is not known, an entry of `ignore` cannot be read, or a node lacks an input or
            output that its operator has to have.
    """
    ignores = parse_ignores(ignore, RULES)
    versions = parse_version(tensorrt)
    copy = model.clone()
    check_required_inputs(copy, plugin_ops)
    InferTypes()(copy)
    position = {node: index for index, node in enumerate(all_nodes(copy))}
    matches: list[tuple[Pattern, Match]] = []
    for is_folded in (False, True):
        if is_folded:
            fold.fold_constants(Writer(copy, Done(copy, modified=False)))
        subject = Subject(copy, versions, plugin_ops, inputs, is_stated=tensorrt is not None)
        patterns = (pattern for pattern in RULES.values() if pattern.is_of_folded == is_folded)
        matches += [(pattern, match) for pattern in patterns for match in pattern.find(subject)]

    def order(found: tuple[Pattern, Match]) -> tuple[int, int]:
        pattern, match = found
        severity = match.severity or pattern.severity
        return SEVERITIES.index(severity), -1 if match.node is None else position.get(match.node, len(position))

    return split_ignored((pattern.finding(match) for pattern, match in sorted(matches, key=order)), ignores)[0]


@dataclass(frozen=True)
class RepairReport:
    """Changes by pass, and the places that were refused.

    Attributes:
        counts: by pass, in the order in which they ran, how many places it changed.
        refused: {pass, node, reason} of each place that has a pattern and was left as it is.
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
        model: of any precision, without functions. It leaves sorted, with types inferred.
        passes: names of PASSES, in the order in which they run; none: the model is not touched.

    Raises:
        StageError: an unknown pass; a graph with a cycle; a node without what its operator requires.
    """
    check_passes(passes)
    report = RepairReport()
    if not passes:
        return report
    check_required_inputs(model)
    OpsetsOfSubgraphs()(model)
    InferTypes()(model)
    for name in passes:
        done = Done(model, modified=False)
        PASSES[name](Writer(model, done))
        report.counts[name] = done.counts.total()
        report.refused.extend({"pass": name} | refusal for refusal in done.refused)
        if report.counts[name]:
            InferTypes()(model)
    return report
