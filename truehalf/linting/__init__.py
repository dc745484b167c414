"""Patterns in a graph that TensorRT refuses, computes wrongly, or runs slowly.

`lint` looks at a model and changes nothing. A rule is a Rule with a check, a function of a Subject that yields places;
each file holds a small family of them. What rules share: where values come from (values), sizes that are known before a
run (sizes), and which operators which version builds (support).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import onnx_ir as ir

from truehalf.ir.slots import check_required_inputs
from truehalf.linting.base import Check, LocatedFinding, Rule, Subject
from truehalf.linting.finding import SEVERITIES, Finding
from truehalf.linting.ignoring import parse_ignores, split_ignored
from truehalf.linting.inlining import inlined
from truehalf.linting.rules import (
    attention,
    control_flow,
    data_shapes,
    interface,
    layer_norm,
    numbers,
    operators,
    sampling,
    selection,
    topk,
)
from truehalf.linting.support import parse_version

__all__ = ["CHECKS", "RULES", "SEVERITIES", "Finding", "Rule", "lint"]

_MODULES = (
    *(operators, control_flow, data_shapes, topk, selection, sampling, layer_norm, attention, numbers, interface),
)
CHECKS: tuple[Check, ...] = tuple(check for module in _MODULES for check in module.CHECKS)
RULES: dict[str, type[Rule]] = {rule.id: rule for module in _MODULES for rule in module.RULES}


def lint(
    model: ir.Model,
    *,
    tensorrt: str | None = None,
    ignore: Sequence[str] = (),
    plugin_ops: Collection[str] = (),
    inputs: Sequence[str] = (),
) -> list[Finding]:
    """TensorRT compatibility of a model, errors first, then in graph order.

    Args:
        model: sorted, typed as far as onnx can infer; it is left as it is. Functions are inlined on a copy, where
            the node "slice" of a function that the node "head" calls is "head/slice".
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
    model, reason = inlined(model, plugin_ops)
    check_required_inputs(model, plugin_ops)
    subject = Subject(model, versions, plugin_ops, inputs)
    places = [place for check in CHECKS for place in check(subject)]
    if reason:
        places.append(operators.not_inlined(reason))
    position = {node: index for index, node in enumerate(subject.nodes)}

    def order(place: LocatedFinding) -> tuple[int, int]:
        at = position[place.node] if place.node is not None else (len(position) if place.last else -1)
        return SEVERITIES.index(place.finding.severity), at

    kept, _ = split_ignored((place.finding for place in sorted(places, key=order)), ignores)
    return kept
