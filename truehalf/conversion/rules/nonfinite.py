"""NaN and Inf that were measured: the tensor's producer and consumers are candidates, but for Inf that only masks.

    harmless(x)     x is no graph output, and every use of it is harmless
    harmless use    a comparison, IsInf, IsNaN, ArgMax: it writes no floats
                    Softmax, Min, Max, Clip, Where, TopK, ReduceMax, ...: they choose, and what they wrote was finite
                    Add, Sub, Mul, Neg, Where, moves: all that they write is harmless

float16 holds NaN and Inf exactly. But where FP32 divides by zero or overflows, FP16 does so for more of the values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import onnx_ir as ir

from truehalf.calibration.ranges_form import TensorRange
from truehalf.conversion.rules.base import Decision, RuleContext, Verdict
from truehalf.ir.facts import all_nodes, subgraphs
from truehalf.ir.ops import Trait, has, with_trait

_PASSES = with_trait(Trait.NO_ARITHMETIC | Trait.LINEAR)


def nonfinite(context: RuleContext) -> Callable[[ir.Node, RuleContext], Decision | None]:
    """The rule for one model."""
    tensors = context.ranges.tensors if context.ranges is not None else {}
    spoiled = {name for name, entry in tensors.items() if entry.nonfinite}
    harmless = _harmless(context, spoiled) if spoiled else set[ir.Value]()

    def rule(node: ir.Node, context: RuleContext) -> Decision | None:
        for value, entry in context.measured(node) if spoiled else ():
            if value.name in spoiled and value not in harmless:
                return _decision(value, entry)
        return None

    return rule


def _decision(value: ir.Value, entry: TensorRange) -> Decision:
    samples = f"{entry.nonfinite} sample{'s' * (entry.nonfinite > 1)}"
    reason = f"{value.name!r} holds NaN or Inf in {samples}, and not only to mask"
    return Decision(Verdict.fp32, "nonfinite", reason, float(entry.nonfinite), 0.0, value.name, entry.sample)


def _harmless(context: RuleContext, spoiled: set[str]) -> set[ir.Value]:
    """Values whose Inf and NaN reach nothing but masks and choices; uses come before what they use, backwards."""
    found: set[ir.Value] = set()

    def is_harmless(node: ir.Node) -> bool:
        if node.domain != "" or subgraphs(node):
            return False
        if all(value.dtype is not None and not value.dtype.is_floating_point() for value in node.outputs):
            return True
        if has(node, Trait.CHOOSES) and not any(value.name in spoiled for value in node.outputs):
            return True
        return node.op_type in _PASSES and all(value in found for value in node.outputs)

    verdicts: dict[ir.Node, bool] = {}

    def add(values: Iterable[ir.Value]) -> None:
        inner = (value for value in values if not value.is_graph_output())
        found.update(value for value in inner if all(verdicts.get(user, False) for user in value.consumers()))

    for node in reversed(list(all_nodes(context.model))):
        add(node.outputs)
        verdicts[node] = is_harmless(node)
    add([*context.model.graph.inputs, *context.model.graph.initializers.values()])
    return found
