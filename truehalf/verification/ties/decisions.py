"""Decisions in a model: nodes that make another number, index or mask of a value that is hardly another one.

Choice    ArgMax, ArgMin, TopK: an index; Hardmax: 1 at the largest, 0 elsewhere
Step      Greater, Less, Equal and their like; Round, Floor, Ceil, Sign; a Cast of floats to integers or bool
Other     MaxPool: a place; NonMaxSuppression: rows; QuantizeLinear: a step; Mod: how often a divisor goes
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from truehalf.ir.facts import is_op, opset_of, upstream
from truehalf.ir.ops import Trait, has, row_of

_OF_ONE_AXIS = 13  # the opset from which Softmax and Hardmax are


@dataclass(frozen=True)
class Choice:
    """Which element was chosen.

    Attributes:
        operands: names of what the node reads that is no constant.
        values: names of tensors inside the model, of one number of values in one order: what was chosen from, and
            before it what a function that keeps their order made it of.
        axis: of the first, along which it was chosen.
        many: whether there are several of each (TopK).
        is_least: whether the least was chosen.
        marks: whether the output is not the index but of the values' shape, 1 there and else 0 (Hardmax).
    """

    operands: tuple[str, ...]
    values: tuple[str, ...]
    axis: int
    many: bool = False
    is_least: bool = False
    marks: bool = False


@dataclass(frozen=True)
class Step:
    """On which side of a threshold a value is.

    Attributes:
        operands: as of a Choice.
        values: as of a Choice; elementwise functions alone.
        kind: the operator.
        threshold: of a comparison, the name of what the values are compared with, or its value; else None.
    """

    operands: tuple[str, ...]
    values: tuple[str, ...]
    kind: str
    threshold: str | np.ndarray | None = None

    @property
    def is_held(self) -> bool:
        """Whether float16 holds the threshold, where it is a constant; not known of one that is made of constants."""
        if isinstance(self.threshold, str):
            return self.threshold in self.operands
        constant = np.zeros(()) if self.threshold is None else self.threshold
        return bool((constant.astype(np.float16) == constant).all())


@dataclass(frozen=True)
class Other:
    """Any other, which is as its operator makes it of the operands.

    Attributes:
        operands: as of a Choice.
    """

    operands: tuple[str, ...]


Decision = Choice | Step | Other


def read_by(decision: Decision) -> list[tuple[str, ...]]:
    """Names of all tensors that a decision is judged by; together those of which functions that keep the order make
    one another.
    """
    chain = () if isinstance(decision, Other) else decision.values
    alone = [name for name in decision.operands if name not in chain]
    if isinstance(decision, Step) and isinstance(decision.threshold, str) and decision.threshold not in alone:
        alone.append(decision.threshold)
    return [*([chain] if chain else []), *((name,) for name in alone)]


@dataclass(frozen=True)
class Decisions:
    """Of a reference, in the main graph, but for shapes, types and whether it is the opposite.

    Attributes:
        at_outputs: by output.
        inside: by value that another model has, too, in their order; looked at where outputs differ all the same.
        twins: by name the values that are the same, and that the other model has merged into it.
    """

    at_outputs: Mapping[str, Decision]
    inside: Mapping[str, Decision]
    twins: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, model: ir.Model, other: Collection[str]) -> Decisions:
        """Those of a model, beside one that has these names. Where a decision has another name there, the next value
        that is the same stands for it.
        """
        values = [value for node in model.graph for value in node.outputs if value.name]
        alike: dict[object, list[str]] = {}
        for value in values:
            if (node := value.producer()) is not None and _decision(value):
                attributes = tuple(sorted(map(repr, node.attributes.values())))
                alike.setdefault((node.op_type, *node.inputs, attributes), []).append(str(value.name))
        twins = {one: [each for each in names if each not in other] for names in alike.values() for one in names}
        inside = [value for value in values if value.name in other and (value.uses() or twins.get(str(value.name)))]
        found = (
            {str(value.name): decision for value in group if (decision := _decision_behind(value, stops))}
            for group, stops in ((model.graph.outputs, ()), (inside, other))
        )
        return cls(next(found), next(found), twins)


def _decision_behind(value: ir.Value | None, other: Collection[str] = ()) -> Decision | None:
    """That a value is, but for its shape and type, or one before it whose name is not among others."""
    while value is not None and (node := value.producer()) is not None and node.inputs:
        if decision := _decision(value):
            return decision
        if not has(node, Trait.VIEW) and not is_op(node, "Cast", "Not"):
            return None
        value = node.inputs[0]
        if value is not None and value.name in other:
            return None
    return None


def names_in(model: ir.Model) -> dict[str, Decision | None]:
    """Of all that nodes of the main graph give, each with the decision that it is, but for its shape and type."""
    values = (value for node in model.graph for value in node.outputs if value.name)
    return {str(value.name): _decision_behind(value) for value in values}


def _decision(value: ir.Value) -> Decision | None:
    """That a value is."""
    node = value.producer()
    first = node.inputs[0] if node is not None and node.inputs else None
    if node is None or first is None or not first.name or (first.dtype is not None and not _is_float(first)):
        return None
    if has(node, Trait.COMPARES):
        return _comparison(node)
    made = _made_by_cast(node)
    if (has(node, Trait.UNARY) and has(node, Trait.STEPS)) or (made is not None and made.is_integer()):
        return Step(_operands(node), tuple(_in_order(_before_relu(first), None)), node.op_type)
    if made is not None and made.name == "BOOL":
        return Step(_operands(node), tuple(_in_order(_before_relu(first), None)), node.op_type, np.zeros(()))
    if is_op(node, "Hardmax"):
        axis = _axis_of(node)
        return None if axis is None else Choice(_operands(node), tuple(_in_order(first, axis)), axis, marks=True)
    if is_op(node, "MaxPool", "NonMaxSuppression", "QuantizeLinear", "Mod"):
        return Other(_operands(node)) if value.index() == (row_of(node).choice or 0) else None
    if not is_op(node, "ArgMax", "ArgMin", "TopK") or value.index() != row_of(node).choice:
        return None
    many = node.op_type == "TopK"
    axis = node.attributes.get_int("axis", -1 if many else 0)
    is_least = node.op_type == "ArgMin" or (many and not node.attributes.get_int("largest", 1))
    return Choice(_operands(node), tuple(_in_order(first, axis)), axis, many, is_least)


def _operands(node: ir.Node) -> tuple[str, ...]:
    """Names of what a node reads that is computed."""
    return tuple(str(value.name) for value in node.inputs if value is not None and _is_computed(value))


def _is_computed(value: ir.Value) -> bool:
    """Whether it is made of inputs, and not of constants alone."""
    made_of = upstream(value, lambda node: True)
    return any(each.is_graph_input() and each.const_value is None for each in made_of)


def _made_by_cast(node: ir.Node) -> ir.DataType | None:
    return ir.DataType(node.attributes.get_int("to", 0)) if node.op_type == "Cast" else None


def _before_relu(value: ir.Value) -> ir.Value:
    """What a Relu makes a value of: no threshold but 0 is where it has cut off, and that is where it begins to."""
    node = value.producer()
    before = node.inputs[0] if node is not None and is_op(node, "Relu") else None
    return value if before is None or not before.name else before


def _comparison(node: ir.Node) -> Step | None:
    sides = [value for value in node.inputs if value is not None and value.name]
    computed = [value for value in sides if value.const_value is None]
    if len(sides) != 2 or not computed:
        return None
    value = max(computed, key=lambda each: (_axes_of(each), len([*_in_order(each, None)])))
    other = sides[1] if value is sides[0] else sides[0]
    larger = other.producer()
    among = [] if larger is None or not is_op(larger, "Max", "Min") else list(larger.inputs)
    if len(among) == 2 and value in among:  # x == Max(x, t) is x >= t
        other = next((each for each in among if each is not value and each is not None), other)
    threshold = str(other.name) if other.const_value is None else other.const_value.numpy()
    return Step(_operands(node), tuple(_in_order(_before_relu(value), None)), node.op_type, threshold)


def _axes_of(value: ir.Value) -> int:
    """How many axes are not known to be of length 1: what is stretched beside another value is its threshold."""
    return 0 if value.shape is None else sum(length != 1 for length in value.shape)


def _in_order(value: ir.Value | None, axis: int | None) -> Iterator[str]:
    """Names of a value and of those that it is made of, each by a function that keeps their order along the axis; None:
    of all elements.
    """
    same_axes = axis is not None
    while value is not None and value.name:
        yield value.name
        node = value.producer()
        if node is None or not node.inputs:
            return
        is_view = has(node, Trait.VIEW)
        keeps = is_view or has(node, Trait.RISES) or (is_op(node, "Cast") and _is_float(node.inputs[0]))
        if not keeps and not (same_axes and is_op(node, "Softmax", "LogSoftmax") and _is_along(node, axis or 0)):
            return
        same_axes = same_axes and (not is_view or is_op(node, "Identity"))
        value = node.inputs[0]


def _is_float(value: ir.Value | None) -> bool:
    return value is not None and value.dtype is not None and value.dtype.is_floating_point()


def _is_along(node: ir.Node, axis: int) -> bool:
    """Whether a (Log)Softmax is of one axis, this one."""
    value, its_own = node.inputs[0], _axis_of(node)
    rank = None if value is None or value.shape is None else len(value.shape)
    if rank is not None and its_own is not None:
        its_own, axis = its_own % rank, axis % rank
    return its_own == axis


def _axis_of(node: ir.Node) -> int | None:
    """The one axis of a Softmax or Hardmax; before opset 13 it is of all from its own on, None where these are several
    or their number is unknown.
    """
    value = node.inputs[0]
    rank = None if value is None or value.shape is None else len(value.shape)
    version = opset_of(node)
    axis = node.attributes.get_int("axis", -1 if version >= _OF_ONE_AXIS else 1)
    is_one = version >= _OF_ONE_AXIS or (rank is not None and axis % rank + 1 == rank)
    return axis if is_one else None
