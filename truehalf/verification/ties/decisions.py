"""Decisions in a model: nodes that make another number, index or mask of a value that is hardly another one.

Choice    ArgMax, ArgMin, TopK: an index; Hardmax: 1 at the largest, 0 elsewhere
Step      Greater, Less, Equal and their like; Round, Floor, Ceil, Sign; a Cast of floats to integers or bool
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import onnx_ir as ir

_OF_ONE_AXIS = 13  # the opset from which Softmax and Hardmax are


@dataclass(frozen=True)
class Choice:
    """Which element was chosen.

    Attributes:
        values: names of tensors inside the model, of one number of values in one order: what was chosen from, and
            before it what a function that keeps their order made it of.
        axis: of the first, along which it was chosen.
        many: whether there are several of each (TopK).
        is_least: whether the least was chosen.
        marks: whether the output is not the index but of the values' shape, 1 there and else 0 (Hardmax).
    """

    values: tuple[str, ...]
    axis: int
    many: bool = False
    is_least: bool = False
    marks: bool = False

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of all tensors that it is judged by."""
        return self.values


@dataclass(frozen=True)
class Place:
    """Where the largest of a window is, counted through the tensor.

    Attributes:
        values: as of a Choice; elementwise functions alone.
        reach: by spatial axis, how far two elements of a window are apart at most.
    """

    values: tuple[str, ...]
    reach: tuple[int, ...]

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of all tensors that it is judged by."""
        return self.values


@dataclass(frozen=True)
class Selection:
    """Which boxes are kept, [selected, 3].

    Attributes:
        values: the name of the scores.
        boxes: the name of the boxes.
        limits: how many of a class, their overlap, their score: the name of each, or its value; None: not given.
        by_centre: whether boxes are x and y of the centre, width and height; else two corners.
    """

    values: tuple[str, ...]
    boxes: str
    limits: tuple[str | np.ndarray | None, ...]
    by_centre: bool

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of all tensors that it is judged by."""
        return (*self.values, self.boxes, *(each for each in self.limits if isinstance(each, str)))


@dataclass(frozen=True)
class Step:
    """On which side of a threshold a value is.

    Attributes:
        values: as of a Choice; elementwise functions alone.
        kind: the operator.
        threshold: of a comparison, the name of what the values are compared with, or its value; else None.
    """

    values: tuple[str, ...]
    kind: str
    threshold: str | np.ndarray | None = None

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of all tensors that it is judged by."""
        return (*self.values, self.threshold) if isinstance(self.threshold, str) else self.values


Decision = Choice | Place | Selection | Step


def decisions_at_outputs(model: ir.Model) -> dict[str, Decision]:
    """By output of the main graph that a decision or its opposite gives, but for its shape and type."""
    from truehalf.ir.facts import is_op
    from truehalf.ir.ops import Trait, has

    found: dict[str, Decision] = {}
    for output in model.graph.outputs:
        value: ir.Value | None = output
        while value is not None and (node := value.producer()) is not None and node.inputs:
            if decision := _decision(value):
                found[str(output.name)] = decision
            if not has(node, Trait.VIEW) and not is_op(node, "Cast", "Not"):
                break
            value = node.inputs[0]
    return found


def decisions_inside(model: ir.Model, other: Collection[str]) -> dict[str, Decision]:
    """By value that a decision gives to other nodes of the main graph, in their order.

    Args:
        other: names that another model has; values of other names are left out.
    """
    values = (value for node in model.graph for value in node.outputs if value.name in other and value.uses())
    return {str(value.name): decision for value in values if (decision := _decision(value))}


def names_in(model: ir.Model) -> frozenset[str]:
    """Of all that nodes of the main graph give."""
    return frozenset(str(value.name) for node in model.graph for value in node.outputs if value.name)


def _decision(value: ir.Value) -> Decision | None:
    """That a value is."""
    from truehalf.ir.facts import is_op
    from truehalf.ir.ops import Trait, has, row_of

    node = value.producer()
    first = node.inputs[0] if node is not None and node.inputs else None
    if node is None or first is None or not first.name or (first.dtype is not None and not _is_float(first)):
        return None
    if has(node, Trait.COMPARES):
        return _comparison(node)
    made = _made_by_cast(node)
    if (has(node, Trait.UNARY) and has(node, Trait.STEPS)) or (made is not None and made.is_integer()):
        return Step(tuple(_in_order(_before_relu(first), None)), node.op_type)
    if made is not None and made.name == "BOOL":
        return Step(tuple(_in_order(_before_relu(first), None)), node.op_type, np.zeros(()))
    if is_op(node, "Hardmax"):
        axis = _axis_of(node)
        return None if axis is None else Choice(tuple(_in_order(first, axis)), axis, marks=True)
    if is_op(node, "NonMaxSuppression"):
        return _selection(node)
    if not is_op(node, "ArgMax", "ArgMin", "TopK", "MaxPool") or value.index() != row_of(node).choice:
        return None
    if node.op_type == "MaxPool":
        kernel = node.attributes.get_ints("kernel_shape")
        dilations = node.attributes.get_ints("dilations", [1] * len(kernel))
        reach = tuple((side - 1) * step for side, step in zip(kernel, dilations, strict=True))
        by_columns = node.attributes.get_int("storage_order", 0)
        return None if by_columns else Place(tuple(_in_order(first, None)), reach)
    many = node.op_type == "TopK"
    axis = node.attributes.get_int("axis", -1 if many else 0)
    is_least = node.op_type == "ArgMin" or (many and not node.attributes.get_int("largest", 1))
    return Choice(tuple(_in_order(first, axis)), axis, many, is_least)


def _made_by_cast(node: ir.Node) -> ir.DataType | None:
    import onnx_ir as ir

    return ir.DataType(node.attributes.get_int("to", 0)) if node.op_type == "Cast" else None


def _before_relu(value: ir.Value) -> ir.Value:
    """What a Relu makes a value of: no threshold but 0 is where it has cut off, and that is where it begins to."""
    from truehalf.ir.facts import is_op

    node = value.producer()
    before = node.inputs[0] if node is not None and is_op(node, "Relu") else None
    return value if before is None or not before.name else before


def _selection(node: ir.Node) -> Selection | None:
    boxes, scores, *given = [*node.inputs, *[None] * 3][:5]
    if boxes is None or scores is None:
        return None
    limits = tuple(_value_of(each) for each in given)
    by_centre = bool(node.attributes.get_int("center_point_box", 0))
    return Selection((str(scores.name),), str(boxes.name), limits, by_centre)


def _value_of(value: ir.Value | None) -> str | np.ndarray | None:
    if value is None:
        return None
    return str(value.name) if value.const_value is None else value.const_value.numpy()


def _comparison(node: ir.Node) -> Step | None:
    from truehalf.ir.facts import is_op

    sides = [value for value in node.inputs if value is not None and value.name]
    computed = [value for value in sides if value.const_value is None]
    if len(sides) != 2 or not computed:
        return None
    value = max(computed, key=lambda each: len([*_in_order(each, None)]))
    other = sides[1] if value is sides[0] else sides[0]
    larger = other.producer()
    among = [] if larger is None or not is_op(larger, "Max", "Min") else list(larger.inputs)
    if len(among) == 2 and value in among:  # x == Max(x, t) is x >= t
        other = next((each for each in among if each is not value and each is not None), other)
    return Step(tuple(_in_order(_before_relu(value), None)), node.op_type, _value_of(other))


def _in_order(value: ir.Value | None, axis: int | None) -> Iterator[str]:
    """Names of a value and of those that it is made of, each by a function that keeps their order along the axis; None:
    of all elements.
    """
    from truehalf.ir.facts import is_op
    from truehalf.ir.ops import Trait, has

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
    version = node.version or (node.graph.opset_imports.get("", 0) if node.graph is not None else 0)
    axis = node.attributes.get_int("axis", -1 if version >= _OF_ONE_AXIS else 1)
    is_one = version >= _OF_ONE_AXIS or (rank is not None and axis % rank + 1 == rank)
    return axis if is_one else None
