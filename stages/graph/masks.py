"""Attention masks: large negative constants that only mask: where a row has others, a Softmax makes them 0.

    softmax(s + m),  m = where(c, C, 0)  or  (1 - mask) * C, through moves       C := max(C, -32768 / k)
    softmax(where(c, C, s)), only moves between                                  C := max(C, -65504)

C is a float32 constant with elements below -65504, or -Inf; k is how many such masks add up in front of the Softmax.
As float16 alone they would be -Inf, and a row that is masked all over would be NaN.

The first rule asks of what else is added there (the scores) that calibration found |s| < 32000 and
max s - min s <= 32768 / k - 32. Then the sum stays finite, -32768 - 32000 > -65504, and every masked element stays at
least 32 below every other one, where exp gives 1e-14. Without calibration it does not hold. The second asks of s, where
it was measured, that it stays above -65472.

It is proven by pattern: every use of the constant, and of what is computed from it, must end in a Softmax through these
operators, and none of it may be a graph output. Otherwise the constant stays as it is, and the finding says why.

    moves (Expand, Reshape, Transpose, Slice, Concat, ...), Add, Where, Max; Mul by what is 0 or 1; Shape, Size

A row that is masked all over is another matter, as nothing in it is left to be chosen:

    -Inf added, or chosen                  FP32: NaN                         clamped: softmax(s), or uniform
    finite C added, |C| >> |s|             FP32: uniform, s is rounded off   clamped: softmax(s), in steps of 32
    finite C chosen                        FP32: uniform                     clamped: uniform

Who reads such a row gets other numbers; models mask whole rows only where they ignore them (padding). A model that
looks for that NaN, to replace it, is left as it is: when -Inf, or several masks that may add up to it, can make one, no
IsNaN or IsInf may read what the Softmax gives (`_nan_reader`).

A clamp is needed only where something on the way runs in FP16; where all of it stays FP32 (`Path`), the constant stays
as it is.

Constants with elements between -128 and -65504 that pass the same proof need no clamp: they are exact enough, and
`tolerated` by data_max and init_max.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from stages.graph.facts import all_nodes
from stages.graph.float16 import MAX
from stages.graph.rules.base import finite
from stages.graph.rules.facts import ConstantFacts, constant_facts
from stages.graph.slots import is_float32

_LEVEL = 32768.0
_SCORES_MAX = 32000.0
_GAP = 32.0
_LARGE = -128.0
_STEPS = 16  # how far a factor's origin is looked for

# fmt: off
_MOVES = {
    "Compress", "Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity",
    "Reshape", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Trilu", "Unsqueeze",
}
# fmt: on
_CHOOSES = {"Where", "Max"}
_KEEPS_NAN = _MOVES | _CHOOSES | {"Cast", "Div", "Dropout", "MatMul", "Mul"}
_READS_NO_VALUES = {"Shape", "Size"}

Interval = tuple[float, float]
Facts = Callable[[ir.Value], ConstantFacts | None]


@dataclass(frozen=True)
class Path:
    """The way of a constant.

    Attributes:
        nodes: those that it passes, up to the Softmaxes and with them.
        clamped: its line among the findings.
        left: the line that stands there instead when all nodes stay FP32.
    """

    nodes: tuple[ir.Node, ...]
    clamped: str
    left: str


@dataclass
class Masks:
    """What was found.

    Attributes:
        clamps: by constant, what its elements below become.
        paths: by clamped constant, the way that it goes.
        exempt: names of the tensors on the paths of clamped constants, which no range rule need judge.
        tolerated: names of those on the paths of other mask constants; data_max and init_max need not judge them.
        findings: one line for each constant that is proven to mask.
        refused: one line for each that float16 does not hold and that is not.
    """

    clamps: dict[ir.Value, float] = field(default_factory=dict)
    paths: dict[ir.Value, Path] = field(default_factory=dict)
    exempt: set[str] = field(default_factory=set)
    tolerated: set[str] = field(default_factory=set)
    findings: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


def find_masks(model: ir.Model, ranges: Mapping[str, Any] | None, facts: Facts | None = None) -> Masks:
    """Find mask constants and what they may become.

    Args:
        model: normalized.
        ranges: content of ranges.json; None: only a Where directly before the Softmax is clamped.
        facts: of a constant, where they are known already.
    """
    finder = _Finder(model, ranges, facts or _facts_of)
    for constant in finder.candidates():
        finder.start(constant)
    if finder.marked:
        finder.spread()
    return finder.judged()


@dataclass
class _Mark:
    """What is known of a value that a mask constant is part of.

    Attributes:
        constants: the mask constants in it.
        stacked: how many clamped constants may add up in it.
        rest: extremes of all else in it; None: not known.
        computed: whether something was added to the constant, or multiplied by it.
    """

    constants: dict[ir.Value, None]
    stacked: int
    rest: Interval | None
    computed: bool = False


class _Finder:
    def __init__(self, model: ir.Model, ranges: Mapping[str, Any] | None, facts: Facts) -> None:
        self.facts = facts
        self.tensors: Mapping[str, Any] = ranges["tensors"] if ranges is not None else {}
        self.nodes = list(all_nodes(model))
        self.outputs = {value for graph in model.graphs() for value in graph.outputs}
        self.inputs = {value for graph in model.graphs() for value in graph.inputs}
        self.leaving = _leaving(self.nodes)
        self.clamped: dict[ir.Value, bool] = {}  # by constant; False: it is small enough to stay
        self.marked: dict[ir.Value, _Mark] = {}
        self.ends: list[tuple[ir.Node, _Mark]] = []
        self.faults: dict[ir.Value, str] = {}
        self.passed: dict[ir.Value, list[ir.Node]] = {}  # by constant

    # --- where masks may be -------------------------------------------------------------------------------------------

    def candidates(self) -> Iterator[ir.Value]:
        """Constants that reach a Softmax through the operators of a mask, in graph order."""
        waiting = [node.inputs[0] for node in self.nodes if _is(node, "Softmax")]
        seen: set[ir.Value] = set()
        found: set[ir.Value] = set()
        while waiting:
            value = waiting.pop()
            if value is None or value in seen or not is_float32(value):
                continue
            seen.add(value)
            producer = value.producer()
            if producer is None or _is(producer, "Constant"):
                found.add(value)
            elif producer.domain == "" and producer.op_type in _MOVES | _CHOOSES | {"Add", "Mul"}:
                waiting += [producer.inputs[index] for index in _carrying(producer)]
        order = dict.fromkeys(value for node in self.nodes for value in node.inputs if value in found)
        yield from (value for value in order if value is not None and value not in self.inputs)

    def start(self, constant: ir.Value) -> None:
        """Mark a constant, if it masks."""
        facts = self.facts(constant)
        if facts is None or (facts.lowest >= _LARGE and not facts.neginf):
            return
        extreme = facts.neginf or facts.lowest < -MAX
        rest = _rest_of(constant) if extreme else (facts.lowest, facts.absmax)
        self.clamped[constant] = extreme
        self.marked[constant] = _Mark({constant: None}, int(extreme), rest)

    # --- where they go ------------------------------------------------------------------------------------------------

    def spread(self) -> None:
        """Follow the marks from node to node; what is no mask's way is a fault of the constants that came there."""
        for constant in self.clamped:
            self._check_output(constant)
        for node in self.nodes:
            marks = [self.marked[value] for value in node.inputs if value is not None and value in self.marked]
            if not marks or (node.domain == "" and node.op_type in _READS_NO_VALUES):
                continue
            for constant in dict.fromkeys(constant for mark in marks for constant in mark.constants):
                self.passed.setdefault(constant, []).append(node)
            if _is(node, "Softmax"):
                self.ends.append((node, marks[0]))
                continue
            passed = self._through(node)
            if isinstance(passed, str):
                for mark in marks:
                    self._blame(mark, passed)
                continue
            for value in node.outputs:
                self.marked[value] = passed
                self._check_output(value)

    def _check_output(self, value: ir.Value) -> None:
        if value in self.outputs:
            self._blame(self.marked[value], f"it reaches the graph output {value.name!r}")

    def _through(self, node: ir.Node) -> _Mark | str:
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
            return _Mark(constants, marks[0].stacked, (0.0, 0.0), computed=True)
        rests = [self.marked[value].rest if value in self.marked else self._interval(value) for value in read]
        known = [rest for rest in rests if rest is not None]
        complete = len(known) == len(rests)
        if node.op_type == "Add":
            total = (sum(low for low, _ in known), sum(high for _, high in known)) if complete else None
            return _Mark(constants, sum(mark.stacked for mark in marks), total, computed=True)
        hull = (min(low for low, _ in known), max(high for _, high in known)) if complete else None
        if node.op_type == "Trilu" and hull is not None:
            hull = min(hull[0], 0.0), max(hull[1], 0.0)
        return _Mark(constants, max(mark.stacked for mark in marks), hull, computed)

    def _interval(self, value: ir.Value) -> Interval | None:
        """Extremes of a value that no mask is in; None: not known, or not finite."""
        if (facts := self.facts(value)) is not None:
            return None if facts.neginf else (facts.lowest, facts.absmax)
        entry = self.tensors.get(value.name or "")
        if not isinstance(entry, Mapping) or any(entry.get(kind) for kind in ("nan", "posinf", "neginf")):
            return None
        absmax, low, high = (finite(entry.get(key)) for key in ("absmax", "min", "max"))
        if absmax is None:
            return None
        return -absmax if low is None else low, absmax if high is None else high

    def _is_zero_or_one(self, value: ir.Value) -> bool:
        interval = self._interval(value)
        return interval is not None and interval[0] >= 0 and interval[1] <= 1 and _is_whole(value, _STEPS)

    # --- what they may become -----------------------------------------------------------------------------------------

    def judged(self) -> Masks:
        levels = dict.fromkeys(self.clamped, -MAX)
        ended: set[ir.Value] = set()
        for _, mark in self.ends:
            level = -_LEVEL / max(1, mark.stacked) if mark.computed else -MAX
            levels.update((constant, max(levels[constant], level)) for constant in mark.constants)
            ended.update(mark.constants)
        for node, mark in self.ends:
            fault = _end_fault(node, mark, max(levels[constant] for constant in mark.constants))
            if (fault := fault or self._guard_fault(node, mark)) is not None:
                self._blame(mark, fault)
        for constant in self.clamped:
            if constant not in ended:
                self.faults.setdefault(constant, "no Softmax reads it")
        self._share_faults()
        masks = Masks()
        for constant, clamped in self.clamped.items():
            facts = self.facts(constant)
            before = "-inf" if facts is None or facts.neginf else f"{facts.lowest:.4g}"
            if constant in self.faults:
                masks.refused += [f"{constant.name!r} ({before}) is not clamped: {self.faults[constant]}"] * clamped
            elif clamped:
                level = masks.clamps[constant] = float(np.float16(levels[constant]))
                line = f"{constant.name!r} ({before}) only masks"
                path = Path(
                    tuple(self.passed[constant]), f"{line}: clamped to {level:g}", f"{line}, in FP32 nodes alone"
                )
                masks.paths[constant] = path
                masks.findings.append(path.clamped)
            else:
                masks.findings.append(f"{constant.name!r} ({before}) only masks")
        for value, mark in self.marked.items():
            if value.name and not any(constant in self.faults for constant in mark.constants):
                (masks.exempt if mark.stacked else masks.tolerated).add(value.name)
        return masks

    def _guard_fault(self, node: ir.Node, mark: _Mark) -> str | None:
        """Why what is behind a Softmax forbids a clamp, which takes the NaN of a row that is masked all over away."""
        infinite = any((facts := self.facts(constant)) is not None and facts.neginf for constant in mark.constants)
        reader = self._nan_reader(node.outputs[0]) if infinite or mark.stacked > 1 else None
        if reader is None:
            return None
        return f"{reader.op_type} {reader.name!r} looks for the NaN of a fully masked row behind Softmax {node.name!r}"

    def _nan_reader(self, value: ir.Value) -> ir.Node | None:
        """An IsNaN or IsInf that reads a value, or what keeps the NaN in it, out of bodies as well."""
        waiting, seen = [value], {value}
        while waiting:
            found = waiting.pop()
            results = list(self.leaving.get(found, ()))
            for node in found.consumers():
                if _is(node, "IsNaN") or _is(node, "IsInf"):
                    return node
                if node.domain == "" and node.op_type in _KEEPS_NAN:
                    results += node.outputs
            waiting += [result for result in results if result not in seen]
            seen.update(results)
        return None

    def _blame(self, mark: _Mark, fault: str) -> None:
        for constant in mark.constants:
            self.faults.setdefault(constant, fault)

    def _share_faults(self) -> None:
        """A constant that meets a faulty one in some value is not safe either."""
        meetings: dict[ir.Value, list[_Mark]] = {}
        for mark in self.marked.values():
            for constant in mark.constants if len(mark.constants) > 1 else ():
                meetings.setdefault(constant, []).append(mark)
        waiting = list(self.faults)
        while waiting:
            faulty = waiting.pop()
            for mark in meetings.pop(faulty, ()):
                waiting += [constant for constant in mark.constants if constant not in self.faults]
                self._blame(mark, self.faults[faulty])


def _end_fault(node: ir.Node, mark: _Mark, level: float) -> str | None:
    """Why a Softmax does not allow its masks the level; the one nearest to 0, where they have several."""
    if not mark.stacked:
        return None
    if level == -MAX and not mark.computed:
        low = 0.0 if mark.rest is None else mark.rest[0]
        return None if low >= _GAP - MAX else f"the scores before Softmax {node.name!r} go down to {low:.6g}"
    if mark.rest is None:
        return f"the scores before Softmax {node.name!r} were not measured"
    low, high = mark.rest
    if max(-low, high) >= _SCORES_MAX:
        return f"the scores before Softmax {node.name!r} reach |s| = {max(-low, high):.6g}; expected below 32000"
    if high - low > -level - _GAP:
        return f"the scores before Softmax {node.name!r} span {high - low:.6g}; expected at most {-level - _GAP:g}"
    return None


def _leaving(nodes: list[ir.Node]) -> dict[ir.Value, list[ir.Value]]:
    """By output of a body, what the node writes that has the body."""
    found: dict[ir.Value, list[ir.Value]] = {}
    for node in nodes:
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                for value in attribute.as_graph().outputs:
                    found.setdefault(value, []).extend(node.outputs)
    return found


def _carrying(node: ir.Node) -> list[int]:
    """Positions of the inputs whose elements are in the output."""
    if node.op_type in ("Add", "Mul", "Max", "Concat"):
        return list(range(len(node.inputs)))
    if node.op_type == "Where":
        return [1, 2]
    return [0] if node.op_type in _MOVES else []


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


def _is(node: ir.Node, op_type: str) -> bool:
    return node.domain == "" and node.op_type == op_type


def _facts_of(value: ir.Value) -> ConstantFacts | None:
    tensor = ir.convenience.get_const_tensor(value) if is_float32(value) else None
    return None if tensor is None else constant_facts(tensor)
