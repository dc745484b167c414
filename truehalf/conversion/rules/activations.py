"""Rules on calibrated tensors that a node reads or writes, where they would become float16 with it.

    overflow     finite |x| * safety_factor > 65504: its producer, and its consumers (a cast overflows as well)
    data_max     finite |x| > data_max
    nonfinite    NaN or Inf was there, and not only to mask (truehalf.conversion.rules.nonfinite)
    unmeasured   a node in a branch of an If that reads or writes a tensor of which nothing is known: no range, no
                 constant, and not moved from such (what a branch captures has a range; what it computes has one where
                 all samples took it); a node that depends on a plugin

|x| is measured on the finite elements.
"""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

from truehalf.calibration.ranges_form import TensorRange
from truehalf.conversion.rules.base import Decision, RuleContext, Verdict, on_sample
from truehalf.float16 import MAX
from truehalf.ir.facts import reached
from truehalf.ir.ops import moved_inputs
from truehalf.ir.proto.plugins import BEHIND


def overflow(node: ir.Node, context: RuleContext) -> Decision | None:
    found = _largest(context.measured(node))
    factor = context.precision.safety_factor
    if found is None or found[0] * factor <= MAX:
        return None
    value, name, sample = found
    scaled = f" * safety_factor {factor:g}" if factor != 1 else ""
    reason = f"{name!r} reaches |x| = {value:.4g}{scaled} > 65504, float16's largest{on_sample(sample)}"
    return Decision(Verdict.fp32, "overflow", reason, value=value, threshold=MAX, tensor=name, sample=sample)


def data_max(node: ir.Node, context: RuleContext) -> Decision | None:
    limit = context.precision.data_max
    if limit is None:
        return None
    found = _largest(context.measured(node))
    if found is None or found[0] <= limit:
        return None
    value, name, sample = found
    reason = f"{name!r} reaches |x| = {value:.4g} > data_max {limit:g}{on_sample(sample)}"
    return Decision(Verdict.fp32, "data_max", reason, value=value, threshold=limit, tensor=name, sample=sample)


def unmeasured(node: ir.Node, context: RuleContext) -> Decision | None:
    if context.ranges is None:
        return None
    if node.meta.get(BEHIND):
        return Decision(Verdict.fp32, "unmeasured", "it depends on a plugin, which calibration does not run")
    judged = [] if node.graph is context.model.graph else context.moving(node)
    unknown = next((value for value in judged if not _is_known(value, context)), None)
    if unknown is None:
        return None
    reason = f"{unknown.name!r} has no range: it is inside a subgraph that calibration did not measure"
    return Decision(Verdict.fp32, "unmeasured", reason, tensor=unknown.name)


def _is_known(value: ir.Value, context: RuleContext) -> bool:
    """Whether a value has a range or is a constant, or all of it is moved from such; what masks needs none."""

    def is_known(value: ir.Value) -> bool:
        measured = context.absmax(value) is not None or value.name in context.masking
        return measured or context.constant(value) is not None

    def moved(value: ir.Value) -> list[ir.Value | None]:
        node = None if is_known(value) else value.producer()
        return [] if node is None else [node.inputs[index] for index in moved_inputs(node)]

    return all(is_known(each) or moved(each) for each in reached([value], moved))


def _largest(measured: Iterable[tuple[ir.Value, TensorRange]]) -> tuple[float, str, str | None] | None:
    """Largest finite |x| with its tensor and sample."""
    found = ((each.absmax, value.name or "", each.sample) for value, each in measured if each.absmax is not None)
    return max(found, key=lambda each: each[0], default=None)
