"""Rules that compare a number with what float16 holds, or with an option.

    overflow          a measured |x| * safety_factor > 65504: its producer, and its consumers (a cast overflows as well)
    data_max          a measured |x| > data_max
    inner             the largest sum, mean square or logit that calibration found inside a node, times safety_factor,
                      > 65504
    init_max          a constant |w| > init_max (Inf is exact in float16)
    reduction_depth   an output element accumulates more terms (truehalf.ir.arithmetic) than reduction_depth_max
    unmeasured        a node in a branch of an If that reads or writes a tensor of which nothing is known: no range, no
                      constant, and not moved from such (a branch that all samples took has ranges; Silero VAD holds one
                      for each sampling rate); a node that depends on a plugin

|x| and |w| are those of finite elements.
"""

from __future__ import annotations

import onnx_ir as ir

from truehalf.conversion.rules.base import Decision, RuleContext, Verdict
from truehalf.float16 import MAX
from truehalf.ir.arithmetic import reduction_depth
from truehalf.ir.facts import reached
from truehalf.ir.ops import moved_inputs
from truehalf.ir.proto.plugins import BEHIND


def overflow(node: ir.Node, context: RuleContext) -> Decision | None:
    factor = context.precision.safety_factor
    largest = _largest(node, context)
    if largest is None or largest[0] * factor <= MAX:
        return None
    return _beyond("overflow", largest, MAX, f"{_times(factor)} > 65504, float16's largest")


def data_max(node: ir.Node, context: RuleContext) -> Decision | None:
    limit = context.precision.data_max
    largest = _largest(node, context) if limit is not None else None
    if limit is None or largest is None or largest[0] <= limit:
        return None
    return _beyond("data_max", largest, limit, f" > data_max {limit:g}")


def _largest(node: ir.Node, context: RuleContext) -> tuple[float, str, str | None] | None:
    """Largest finite |x| that a node reads or writes, with its tensor and sample."""
    measured = context.measured(node)
    found = ((each.absmax, value.name or "", each.sample) for value, each in measured if each.absmax is not None)
    return max(found, key=lambda each: each[0], default=None)


def _beyond(rule: str, largest: tuple[float, str, str | None], limit: float, than: str) -> Decision:
    value, name, sample = largest
    reason = f"{name!r} reaches |x| = {value:.4g}{than}{_on(sample)}"
    return Decision(Verdict.fp32, rule, reason, value=value, threshold=limit, tensor=name, sample=sample)


def inner(node: ir.Node, context: RuleContext) -> Decision | None:
    if not context.precision.inner or context.ranges is None:
        return None
    found = context.ranges.inner.get(node.name or "")
    factor = context.precision.safety_factor
    if found is None or found.value is None or found.value * factor <= MAX:
        return None
    quantity = found.quantity.replace("_", " ")
    than = f"{_times(factor)} > 65504{_on(found.sample)}"
    reason = f"the {quantity} inside {node.op_type} reaches {found.value:.4g}{than}"
    return Decision(Verdict.fp32, "inner", reason, value=found.value, threshold=MAX, sample=found.sample)


def init_max(node: ir.Node, context: RuleContext) -> Decision | None:
    limit = context.precision.init_max
    if limit is None:
        return None
    largest = max(((facts.absmax, name) for name, facts in context.constants(node)), default=(0.0, ""))
    if largest[0] <= limit:
        return None
    value, name = largest
    reason = f"constant {name!r} holds |w| = {value:.4g} > init_max {limit:g}"
    return Decision(Verdict.fp32, "init_max", reason, value=value, threshold=limit, tensor=name)


def depth(node: ir.Node, context: RuleContext) -> Decision | None:
    limit = context.precision.reduction_depth_max
    terms = reduction_depth(node) if limit is not None else 1
    if limit is None or terms <= limit:
        return None
    reason = f"{node.op_type} accumulates {terms} terms > reduction_depth_max {limit}"
    return Decision(Verdict.fp32, "reduction_depth", reason, value=float(terms), threshold=float(limit))


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
        entry = context.entry(value)
        is_measured = entry is not None and entry.absmax is not None
        return is_measured or value.name in context.masking or context.constant(value) is not None

    def moved(value: ir.Value) -> list[ir.Value | None]:
        node = None if is_known(value) else value.producer()
        return [] if node is None else [node.inputs[index] for index in moved_inputs(node)]

    return all(is_known(each) or moved(each) for each in reached([value], moved))


def _times(factor: float) -> str:
    return f" * safety_factor {factor:g}" if factor != 1 else ""


def _on(sample: str | None) -> str:
    return f" on sample {sample}" if sample else ""
