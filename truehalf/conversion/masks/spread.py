"""Propagation of mask constants to the Softmaxes that they end in; truehalf.conversion.masks.masks judges its result.

A mark follows a constant from node to node, through the operators of a mask, to the Softmaxes where it ends. An
operator that no mask passes rejects every constant in the value that it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from truehalf.calibration.ranges_form import Ranges
from truehalf.conversion.rules.facts import ConstantFacts
from truehalf.float16 import MAX
from truehalf.ir import ops
from truehalf.ir.facts import all_nodes, is_op, reached
from truehalf.ir.ops import Trait
from truehalf.ir.slots import is_float32

_LARGE = -128.0
_STEPS = 16  # how far a factor's origin is looked for

# Moves of one tensor that add nothing but 0, and Concat.
MOVES = (ops.MOVES - ops.with_trait(Trait.FILLS | Trait.CHOOSES | Trait.SIZED_BY_FIRST)) | {"Trilu"}
_JOINS = {"Add", "Mul", "Max"}
_SPREADS = MOVES | _JOINS | {"Where"}

Interval = tuple[float, float]
Facts = Callable[[ir.Value], ConstantFacts | None]


@dataclass
class Mark:
    """What is known of a value that a mask constant is part of.

    Attributes:
        constants: the mask constants in it.
        stacked: how many clamped constants may accumulate in it.
        rest: extremes of all else in it; None: not known.
        computed: whether something was added to the constant, or multiplied by it.
    """

    constants: dict[ir.Value, None]
    stacked: int
    rest: Interval | None
    computed: bool = False


class Spread:
    """The constants that may mask, and what they are in.

    Attributes:
        clamped: by constant, whether float16 does not hold it; False: it may stay as it is.
        marked: by value that constants are in, what is known of it.
        passed: by constant, the nodes that it passes.
        ends: the Softmaxes, with the marks of what they read.
        rejected: by constant, why it is no mask.
    """

    def __init__(self, model: ir.Model, ranges: Ranges | None, facts: Facts) -> None:
        self.facts = facts
        self.tensors = ranges.tensors if ranges is not None else {}
        self.nodes = list(all_nodes(model))
        self.clamped: dict[ir.Value, bool] = {}
        self.marked: dict[ir.Value, Mark] = {}
        self.ends: list[tuple[ir.Node, Mark]] = []
        self.rejected: dict[ir.Value, str] = {}
        self.passed: dict[ir.Value, list[ir.Node]] = {}
        for constant in self._candidates():
            self._start(constant)
        if self.marked:
            self._follow()

    # --- where masks may be -------------------------------------------------------------------------------------------

    def _candidates(self) -> Iterator[ir.Value]:
        """Constants that reach a Softmax through the operators of a mask, in graph order."""

        def carried(value: ir.Value) -> list[ir.Value | None]:
            node = value.producer() if is_float32(value) else None
            return [node.inputs[index] for index in _carrying(node)] if node is not None and node.domain == "" else []

        read = (node.inputs[0] for node in self.nodes if is_op(node, "Softmax"))
        makers = {value: value.producer() for value in reached(read, carried) if is_float32(value)}
        found = {value for value, maker in makers.items() if maker is None or is_op(maker, "Constant")}
        order = dict.fromkeys(value for node in self.nodes for value in node.inputs if value in found)
        yield from (value for value in order if value is not None and not value.is_graph_input())

    def _start(self, constant: ir.Value) -> None:
        """Mark a constant, if it masks."""
        facts = self.facts(constant)
        if facts is None or (facts.lowest >= _LARGE and not facts.neginf):
            return
        extreme = facts.neginf or facts.lowest < -MAX
        rest = _rest_of(constant) if extreme else (facts.lowest, facts.absmax)
        self.clamped[constant] = extreme
        self.marked[constant] = Mark({constant: None}, int(extreme), rest)

    # --- where they go ------------------------------------------------------------------------------------------------

    def _follow(self) -> None:
        """Follow the marks from node to node; an operator that no mask passes rejects the constants that it reads."""
        for constant in self.clamped:
            self._check_output(constant)
        for node in self.nodes:
            marks = [self.marked[value] for value in node.inputs if value is not None and value in self.marked]
            if not marks or ops.has(node, Trait.SHAPE_ONLY):
                continue
            for constant in dict.fromkeys(constant for mark in marks for constant in mark.constants):
                self.passed.setdefault(constant, []).append(node)
            if is_op(node, "Softmax"):
                self.ends.append((node, marks[0]))
                continue
            passed = self._through(node)
            if isinstance(passed, str):
                for mark in marks:
                    self.reject(mark, passed)
                continue
            for value in node.outputs:
                self.marked[value] = passed
                self._check_output(value)

    def _check_output(self, value: ir.Value) -> None:
        if value.is_graph_output():
            self.reject(self.marked[value], f"it reaches the graph output {value.name!r}")

    def _through(self, node: ir.Node) -> Mark | str:
        """The mark of what a node writes; where no mask goes, why not."""
        positions = _carrying(node)
        marked = [index for index, value in enumerate(node.inputs) if value in self.marked]
        if node.domain != "" or not set(marked) <= set(positions):
            return f"{node.op_type} {node.name!r} reads it, too"
        read = [value for index in positions if (value := node.inputs[index]) is not None]
        marks = [self.marked[value] for value in read if value in self.marked]
        constants = {constant: None for mark in marks for constant in mark.constants}
        computed = any(mark.computed for mark in marks)
        if node.op_type == "Mul":
            factors = [value for value in read if value not in self.marked]
            is_mask = len(marks) == 1 and marks[0].rest is not None and marks[0].rest == (0.0, 0.0)
            if not is_mask:
                return f"Mul {node.name!r} reads it, too, and it is not the only thing there that counts"
            if (factor := next((value for value in factors if not self._is_zero_or_one(value)), None)) is not None:
                return f"its factor {factor.name!r} in Mul {node.name!r} is not proven to be 0 or 1"
            return Mark(constants, marks[0].stacked, (0.0, 0.0), computed=True)
        rests = [self.marked[value].rest if value in self.marked else self._interval(value) for value in read]
        known = [rest for rest in rests if rest is not None]
        complete = len(known) == len(rests)
        if node.op_type == "Add":
            total = (sum(low for low, _ in known), sum(high for _, high in known)) if complete else None
            return Mark(constants, sum(mark.stacked for mark in marks), total, computed=True)
        hull = (min(low for low, _ in known), max(high for _, high in known)) if complete else None
        if node.op_type == "Trilu" and hull is not None:
            hull = min(hull[0], 0.0), max(hull[1], 0.0)
        return Mark(constants, max(mark.stacked for mark in marks), hull, computed)

    def _interval(self, value: ir.Value) -> Interval | None:
        """Extremes of a value that no mask is in; None: not known, or not finite."""
        if (facts := self.facts(value)) is not None:
            return None if facts.neginf else (facts.lowest, facts.absmax)
        entry = self.tensors.get(value.name or "")
        if entry is None or entry.nonfinite or entry.absmax is None:
            return None
        return -entry.absmax if entry.min is None else entry.min, entry.absmax if entry.max is None else entry.max

    def _is_zero_or_one(self, value: ir.Value) -> bool:
        interval = self._interval(value)
        return interval is not None and interval[0] >= 0 and interval[1] <= 1 and _is_whole(value, _STEPS)

    def reject(self, mark: Mark, reason: str) -> None:
        for constant in mark.constants:
            self.rejected.setdefault(constant, reason)


def _carrying(node: ir.Node) -> list[int]:
    """Positions of the inputs whose elements are in the output."""
    if node.op_type in _JOINS:
        return list(range(len(node.inputs)))
    return list(ops.moved_inputs(node)) if node.op_type in _SPREADS else []


def _rest_of(constant: ir.Value) -> Interval:
    """Extremes of the elements that will not be clamped; 0 where all will."""
    tensor = ir.convenience.get_const_tensor(constant)
    assert tensor is not None
    array = tensor.numpy()
    kept = array[np.isfinite(array) & (array >= -MAX)]
    return (float(kept.min()), float(kept.max())) if kept.size else (0.0, 0.0)


def _is_whole(value: ir.Value | None, steps: int) -> bool:
    """Whether a value holds whole numbers by the way it is made: of integers and truth values, by sums and moves."""
    if value is None or steps == 0:
        return False
    if value.dtype is not None and not value.dtype.is_floating_point():
        return True
    tensor = ir.convenience.get_const_tensor(value)
    if tensor is not None:
        return tensor.nbytes <= 4096 and bool((tensor.numpy() == np.rint(tensor.numpy())).all())
    node = value.producer()
    if node is None or node.domain != "":
        return False
    if node.op_type == "Cast":
        return _is_whole(node.inputs[0], steps - 1)
    if node.op_type == "Sub":
        return all(_is_whole(read, steps - 1) for read in node.inputs)
    return bool(_carrying(node)) and all(_is_whole(node.inputs[index], steps - 1) for index in _carrying(node))
