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
from truehalf.ir import ops
from truehalf.ir.facts import is_op, subgraphs
from truehalf.ir.ops import Trait
from truehalf.ir.slots import float_slots, movable_slots

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
    _moving: dict[ir.Node, list[ir.Value]] = field(default_factory=dict)
    _constants: dict[ir.Value, ConstantFacts | None] = field(default_factory=dict)

    def entry(self, value: ir.Value) -> TensorRange | None:
        """What was measured of a tensor; None: nothing."""
        return self.ranges.tensors.get(value.name or "") if self.ranges is not None else None

    def moving(self, node: ir.Node) -> list[ir.Value]:
        """The float32 inputs and outputs that become float16 with a node (control flow, custom operators: all)."""
        if node not in self._moving:
            slots = float_slots(node) if subgraphs(node) else movable_slots(node)
            self._moving[node] = list(dict.fromkeys(slots.values(node)))
        return self._moving[node]

    def measured(self, node: ir.Node) -> Iterator[tuple[ir.Value, TensorRange]]:
        """Those of them that have a range and are judged by it."""
        for value in self.moving(node):
            entry = self.entry(value) if value.name not in self.masking else None
            if entry is not None:
                yield value, entry

    def constants(self, node: ir.Node) -> Iterator[tuple[str, ConstantFacts]]:
        """Name and facts of each float32 constant that a node reads or fills in, and would have as float16.

        What an operator makes of only one constant, by filling or moving, is that constant still.
        """
        for value in self.moving(node):
            of_node = value in node.outputs
            if value.name in self.masking or (of_node and not is_op(node, "ConstantOfShape")):
                continue
            if (facts := self.origin(value)) is not None:
                yield f"{node.name}.value" if of_node else value.name or "", facts

    def constant(self, value: ir.Value) -> ConstantFacts | None:
        """Facts of a float32 constant, read once; None for other values."""
        if value not in self._constants:
            self._constants[value] = facts_of(value)
        return self._constants[value]

    def origin(self, value: ir.Value) -> ConstantFacts | None:
        """Facts of the constant, read or filled in, that is all that a value holds; None where it is computed."""
        producer = value.producer()
        while is_op(producer, *_KEEP_ALL):
            source = producer.inputs[0]
            if source is None or source.name in self.masking:
                return None
            value, producer = source, source.producer()
        if is_op(producer, "ConstantOfShape"):
            fill = producer.attributes.get("value")
            return constant_facts(fill.as_tensor()) if fill and fill.as_tensor().dtype == ir.DataType.FLOAT else None
        return self.constant(value)


# Moves whose outputs hold every element of the input, and nothing else.
_KEEP_ALL = ops.with_trait(Trait.LAYOUT | Trait.PERMUTES) | {"Tile"}
