"""Attention masks: large negative constants that end in a Softmax only, and become -16384 where float16 holds them not.

    softmax(s + m),  m = where(c, C, 0)  or  (1 - mask) * C, through moves; or m as the mask of `Attention`

Every use of C, and of what is computed from it, must end in a Softmax or in the mask of an `Attention` through

    moves (Expand, Reshape, Transpose, Slice, Concat, ...), Add, Where, Max, Mul by a factor in 0..1; Shape, Size

and none of it may be a graph output. In float16, C = -3.4e38 would be -Inf, and a row that is masked all over NaN. At
-16384, exp makes 0 of a masked element where scores differ by less than 16352, and three masks and a score still add
up to more than -65504. -Inf stays: float16 holds it. A row that is masked all over gets other weights than in FP32,
where C absorbs the scores; models ignore such rows (padding).

No range judges the tensors on the way: their large values are the mask's. What a factor is, and how far scores reach,
only samples show: verification compares the outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import onnx_ir as ir

from truehalf.calibration.ranges_form import Ranges
from truehalf.conversion.rules.facts import ConstantFacts, facts_of
from truehalf.float16 import MAX
from truehalf.ir import ops
from truehalf.ir.facts import all_nodes, is_op, reached
from truehalf.ir.ops import Trait
from truehalf.ir.slots import is_float32

LEVEL = -16384.0
_LARGE = -128.0  # a constant above it is an ordinary number
_JOINS = {"Add", "Mul", "Max"}
_MOVES = (ops.MOVES - ops.with_trait(Trait.FILLS | Trait.CHOOSES | Trait.SIZED_BY_FIRST)) | {"Trilu", "Where"}
_ATTENTION_MASK = 3  # input of Attention, opset 23


@dataclass
class Masks:
    """The masks of a model.

    Attributes:
        clamped: constants with finite elements below -16384, which become that.
        tensors: names of the masks and of the tensors on their ways, which no range rule judges.
        refused: a line for each constant below -65504 that reaches a Softmax and has another use.
    """

    clamped: list[ir.Value] = field(default_factory=list)
    tensors: set[str] = field(default_factory=set)
    refused: list[str] = field(default_factory=list)


def find_masks(
    model: ir.Model, ranges: Ranges | None, facts: Callable[[ir.Value], ConstantFacts | None] = facts_of
) -> Masks:
    """Find the constants that only mask.

    Args:
        model: normalized.
        ranges: extremes of the factors in Mul; without them any factor passes.
        facts: of a constant, None of other values.
    """
    masks = Masks()
    others: set[str] = set()
    for constant in _constants(model):
        way = _Way(ranges)
        way.follow(constant)
        if not way.masks or (known := facts(constant)) is None or not (known.neginf or known.lowest < _LARGE):
            continue
        names = {value.name for value in way.values if value.name}
        if way.problem is None:
            masks.tensors |= names
            masks.clamped += [constant] if known.lowest < LEVEL else []
        else:
            others |= names
            if known.lowest < -MAX:
                masks.refused.append(f"{constant.name!r} ({known.lowest:.4g}) is not clamped: {way.problem}")
    masks.tensors -= others  # where a mask meets a constant that is none, ranges judge
    return masks


def _constants(model: ir.Model) -> Iterator[ir.Value]:
    """Float32 constants in the order in which nodes read them, those that a caller may override left out."""
    read = dict.fromkeys(value for node in all_nodes(model) for value in node.inputs if value is not None)
    for value in read:
        maker = value.producer()
        is_constant = value.is_initializer() if maker is None else is_op(maker, "Constant")
        if is_constant and is_float32(value) and not value.is_graph_input():
            yield value


class _Way:
    """What a constant's elements pass, up to the Softmaxes.

    Attributes:
        values: on the way.
        masks: whether it ends in a Softmax or in an Attention's mask.
        problem: why it does not only mask; None where it does.
    """

    def __init__(self, ranges: Ranges | None) -> None:
        self._tensors = ranges.tensors if ranges is not None else {}
        self.values: set[ir.Value] = set()
        self.masks = False
        self.problem: str | None = None

    def follow(self, constant: ir.Value) -> None:
        for value in reached([constant], self._written):
            self.values.add(value)
            if value.is_graph_output():
                self.problem = f"it reaches the output {value.name!r}"

    def _written(self, value: ir.Value) -> Iterator[ir.Value]:
        """What the readers of a value write of it, but for those that it masks."""
        for node, position in value.uses():
            if is_op(node, "Softmax") or (is_op(node, "Attention") and position == _ATTENTION_MASK):
                self.masks = True
            elif reason := self._refusal(node, position):
                self.problem = self.problem or reason
            elif not ops.has(node, Trait.SHAPE_ONLY):
                yield from node.outputs

    def _refusal(self, node: ir.Node, position: int) -> str | None:
        """Give the reason why a mask does not pass a node; None if it does."""
        passes = is_op(node, *_JOINS) or (is_op(node, *_MOVES) and position in ops.moved_inputs(node))
        if not passes and not ops.has(node, Trait.SHAPE_ONLY):
            return f"{node.op_type} {node.name!r} reads it, too"
        if node.op_type == "Mul":
            factor = node.inputs[1 - position]
            entry = self._tensors.get(factor.name or "") if factor is not None else None
            if entry is not None and ((entry.min or 0.0) < 0 or (entry.max or 0.0) > 1):
                return f"its factor in Mul {node.name!r} is not in 0..1"
        return None
