"""Common types of the rules: the options, the verdict, and the evidence about tensors and constants.

A rule is a function `(node, context) -> Decision | None`: fp32 with its reason and numbers, or nothing to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, field
from enum import Enum

import onnx_ir as ir

from truehalf.calibration.ranges_form import Ranges, RangesJson, TensorRange
from truehalf.config.precision import Precision
from truehalf.conversion.rules.facts import ConstantFacts, constant_facts, facts_of
from truehalf.float16 import MAX
from truehalf.ir import ops
from truehalf.ir.facts import subgraphs
from truehalf.ir.ops import Trait
from truehalf.ir.slots import float_slots, is_float32, movable_slots

MEASURED = "measured"  # the rule of pins that a check of an earlier conversion has found


class Verdict(Enum):
    """fp32: pinned. fp16: wanted. free: whatever is cheaper."""

    fp32 = "fp32"
    fp16 = "fp16"
    free = "free"


@dataclass(frozen=True)
class Decision:
    """A verdict and its evidence.

    Attributes:
        rule: the rule or list that decided (truehalf.conversion.decide lists them); "none" where none speaks of the
            node.
        value, threshold: the numbers that were compared, where the rule compares.
        tensor: name of the tensor or constant that `value` is of.
        sample: calibration sample that `value` comes from.
        reason: one line.
    """

    verdict: Verdict
    rule: str
    reason: str
    value: float | None = None
    threshold: float | None = None
    tensor: str | None = None
    sample: str | None = None


CustomRule = Callable[[ir.Node, RangesJson], str | None]


@dataclass
class RuleContext:
    """What is known about a model: measured ranges, constants, and which tensors a rule leaves out.

    Attributes:
        ranges: what was measured; None: nothing.
        precision: thresholds and lists.
        custom_rule: of the user's.
        masking: names of attention masks and of the tensors on their ways, which no range rule judges
            (truehalf.conversion.masks).
    """

    model: ir.Model
    ranges: Ranges | None
    precision: Precision
    custom_rule: CustomRule | None = None
    masking: Set[str] = frozenset()
    _constants: dict[ir.Value, ConstantFacts | None] = field(default_factory=dict)
    _seen: _Seen | None = None

    def entry(self, value: ir.Value) -> TensorRange | None:
        """What was measured of a tensor; None: nothing."""
        return self.ranges.tensors.get(value.name or "") if self.ranges is not None else None

    def absmax(self, value: ir.Value) -> float | None:
        """Largest finite |x| that was measured of a tensor."""
        entry = self.entry(value)
        return None if entry is None else entry.absmax

    def moving(self, node: ir.Node) -> list[ir.Value]:
        """The float32 inputs and outputs that become float16 with a node (control flow, custom operators: all)."""
        return self._at(node).moving

    def measured(self, node: ir.Node) -> list[tuple[ir.Value, TensorRange]]:
        """Those of them that have a range and are judged by it."""
        seen = self._at(node)
        if seen.measured is None:
            judged = ((value, self.entry(value)) for value in seen.moving if value.name not in self.masking)
            seen.measured = [(value, entry) for value, entry in judged if entry is not None]
        return seen.measured

    def constants(self, node: ir.Node) -> list[tuple[str, ConstantFacts]]:
        """Name and facts of each float32 constant that a node reads or holds, and would have as float16.

        What an operator makes of only one constant, by filling or moving, is that constant still. So a node with
        subgraphs has those that its subgraphs return. A bound that no float16 reaches is none: it never binds.
        """
        seen = self._at(node)
        if seen.constants is None:
            read = [value for value in seen.moving if value not in node.outputs] + list(_returned(node))
            judged = ((value, self.origin(value)) for value in read if value.name not in self.masking)
            found = ((value, facts) for value, facts in judged if facts is not None)
            seen.constants = [(value.name or "", facts) for value, facts in found if not self._idle(node, value, facts)]
            seen.constants += _held(node)
        return seen.constants

    def _idle(self, node: ir.Node, value: ir.Value, facts: ConstantFacts) -> bool:
        """Whether what a constant holds beyond float16 are bounds that no float16 reaches: Clip(x, -3.4e38, 3.4e38)."""
        if facts.absmax < MAX or node.domain != "":
            return False
        bounds = {1: facts.highest <= MAX, 2: facts.lowest >= -MAX}  # by the input of a Clip: from below, from above
        if node.op_type == "Clip":
            return all(bounds.get(index, False) for index, each in enumerate(node.inputs) if each is value)
        computed = any(other is not None and self.origin(other) is None for other in node.inputs)
        return computed and bounds.get({"Max": 1, "Min": 2}.get(node.op_type, 0), False)

    def constant(self, value: ir.Value) -> ConstantFacts | None:
        """Facts of a float32 constant, read once; None for other values."""
        if value not in self._constants:
            self._constants[value] = facts_of(value)
        return self._constants[value]

    def origin(self, value: ir.Value) -> ConstantFacts | None:
        """Facts of the constant, read or filled in, that is all that a value holds; None where it is computed."""
        producer = value.producer()
        while producer is not None and producer.domain == "" and producer.op_type in _KEEP_ALL:
            source = producer.inputs[0]
            if source is None or source.name in self.masking:
                return None
            value, producer = source, source.producer()
        if producer is not None and producer.op_type == "ConstantOfShape" and producer.domain == "":
            return next((facts for _, facts in _held(producer)), None)
        return self.constant(value)

    def _at(self, node: ir.Node) -> _Seen:
        """What is known of one node: all rules ask of it in a row, then never again."""
        if self._seen is None or self._seen.node is not node:
            self._seen = _Seen(node, _moving(node))
        return self._seen


# Moves whose outputs hold every element of the input, and nothing else.
_KEEP_ALL = ops.with_trait(Trait.LAYOUT | Trait.PERMUTES) | {"Tile"}


@dataclass
class _Seen:
    node: ir.Node
    moving: list[ir.Value]
    measured: list[tuple[ir.Value, TensorRange]] | None = None
    constants: list[tuple[str, ConstantFacts]] | None = None


def on_sample(sample: object) -> str:
    """End of a reason that names the calibration sample, where one is known."""
    return f" on sample {sample}" if sample else ""


def _moving(node: ir.Node) -> list[ir.Value]:
    slots = float_slots(node) if subgraphs(node) else movable_slots(node)
    return list(dict.fromkeys(slots.values(node)))


def _held(node: ir.Node) -> Iterator[tuple[str, ConstantFacts]]:
    """Constants in a node's attributes."""
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.TENSOR and attribute.as_tensor().dtype == ir.DataType.FLOAT:
            yield f"{node.name}.{attribute.name}", constant_facts(attribute.as_tensor())


def _returned(node: ir.Node) -> Iterator[ir.Value]:
    """What the subgraphs of a node return as float32."""
    for subgraph in subgraphs(node):
        yield from (value for value in subgraph.outputs if is_float32(value))
