"""Statistics of inner tensors, reduced inside the graph: only scalars leave the session.

After the producer of every tensor x stand, on f = Reshape(x, [-1]):

    Scanner   ReduceMax(f)  ReduceMin(f)  ReduceSum(f)  Shape(f)  and, in a few tensors, counts of small elements
    Counter   extremes over finite elements, counts of NaN, +Inf, -Inf, of |f| > rung, of fractions

ReduceMax and ReduceMin lose a NaN that is not the first element; the sum never does, but it may overflow:

    max or min not finite                    f holds NaN or Inf
    both finite, sum not NaN                 f is finite (a sum of Inf is an overflow)
    both finite, sum NaN                     NaN, or sums of both signs that overflowed: to be counted exactly

All counts are made of Greater, Less, Floor and Where (opset 9): a NaN is neither below 1 nor above -1, an Inf is above
every float.

Tensors inside subgraphs cannot be outputs of the graph and are not measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
import onnx_ir.passes.common as common_passes

from truehalf.calibration.hazards import Reduction
from truehalf.calibration.instrument import LARGEST, InsertionPoint, Instrumented, main_values
from truehalf.calibration.rounding.replays import Replay, errors, report_replays
from truehalf.calibration.sums import bounded, report_inner
from truehalf.errors import StageError
from truehalf.float16 import LOST, NORMAL_MIN
from truehalf.ir.ops import Trait, has

_FLOAT = ir.DataType.FLOAT


def float_tensors(model: ir.Model, untyped: list[str] | None = None) -> list[str]:
    """Names of the FLOAT tensors that `model` computes or is fed, in graph order; constants are left out.

    Args:
        model: unknown types are inferred and filled in.
        untyped: gets the names of those whose type stays unknown.

    Raises:
        StageError: when a type stays unknown and there is no `untyped`.
    """
    values = [value for value in model.graph.inputs if not value.is_initializer()]
    values += [output for node in model.graph if node.op_type != "Constant" for output in node.outputs if output.name]
    if any(value.type is None for value in values):
        common_passes.ShapeInferencePass(check_type=False, strict_mode=False, data_prop=False)(model)
    unknown = [str(value.name) for value in values if value.type is None]
    if untyped is not None:
        untyped += unknown
    elif unknown:
        raise StageError("type-unknown", f"ranges: the type of {unknown[0]!r} is unknown; add value_info for it")
    return [str(value.name) for value in values if value.type == ir.TensorType(_FLOAT)]


def roots(model: ir.Model, tensors: Iterable[str]) -> dict[str, str]:
    """For each tensor the one whose elements it holds, perhaps in another order: all that is measured is the same."""
    values = main_values(model)
    found: dict[str, str] = {}
    for name in tensors:
        node = values[name].producer()
        source = node.inputs[0] if node is not None and has(node, Trait.PERMUTES) else None
        found[name] = found.get(str(source.name), name) if source is not None else name
    return found


# --- first look: extremes ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SmallCounts:
    """How small the elements of a tensor are, in numbers of elements.

    Attributes:
        nonzero: finite elements other than 0.
        zero: those with |x| <= 2^-25, which float16 makes 0.
        subnormal: those with |x| < 2^-14, which float16 makes 0 or a subnormal.
    """

    nonzero: int
    zero: int
    subnormal: int


@dataclass(frozen=True)
class Scan:
    """One run over the scanned tensors; arrays [tensors], in the scanner's order.

    Attributes:
        outputs: the model's outputs.
        low, high: float32; true extremes where the tensor is neither a suspect nor empty.
        elements: int64.
        nonfinite: bool; the tensor is known to hold NaN or Inf.
        unsure: bool; it may hold NaN.
        kept: the tensors that the scanner keeps on request.
        small: by tensor, where the scanner counts on request.
        errors: of the replays that the scanner makes on request.
    """

    outputs: dict[str, np.ndarray]
    low: np.ndarray
    high: np.ndarray
    elements: np.ndarray
    nonfinite: np.ndarray
    unsure: np.ndarray
    kept: dict[str, np.ndarray]
    small: dict[str, SmallCounts]
    errors: list[float]

    @property
    def suspect(self) -> np.ndarray:
        """bool: where False, the tensor is finite."""
        either: np.ndarray = self.nonfinite | self.unsure
        return either


class Scanner:
    """A session over a model: extremes of `tensors`, `keep` as they are, small elements of `small`, replays' errors."""

    def __init__(
        self,
        model: ir.Model,
        tensors: Sequence[str],
        keep: Sequence[str] = (),
        small: Sequence[str] = (),
        replays: Sequence[Replay] = (),
    ) -> None:
        self.tensors = list(tensors)
        self._keep, self._small = list(keep), list(small)
        self._outputs = [str(value.name) for value in model.graph.outputs]
        graph = Instrumented(model)
        for name in self.tensors:
            place = graph.after(name)
            flat = place.flat(graph.value(name))
            place.report("low", "ReduceMin", flat)
            place.report("high", "ReduceMax", flat)
            place.report("total", "ReduceSum", flat)
            place.report("elements", "Shape", flat)
        for name in self._small:
            place = graph.after(name)
            _report_small(place, place.flat(graph.value(name)))
        report_replays(graph, replays, lambda end: True)
        self._session = graph.open([*self._outputs, *self._keep])

    def run(self, feeds: Mapping[str, np.ndarray]) -> Scan:
        values, columns = self._session.run(feeds)
        nothing = np.zeros(0, np.float32)
        low, high, total = (columns.get(key, nothing) for key in ("low", "high", "total"))
        elements = columns.get("elements", np.zeros(0, np.int64))
        bounded = np.isfinite(low) & np.isfinite(high)
        outputs = {name: values[name] for name in self._outputs}
        kept = {name: values[name] for name in self._keep}
        nonfinite = ~bounded & (elements > 0)
        small = {name: _small(columns, i) for i, name in enumerate(self._small)}
        return Scan(outputs, low, high, elements, nonfinite, bounded & np.isnan(total), kept, small, errors(columns))


# --- second look: exact counts ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Counts:
    """Exact facts of one tensor in one run.

    Attributes:
        nan, posinf, neginf: numbers of elements.
        low, high: extremes of the finite elements; None when there is none.
        above: numbers of finite elements with |x| > rung, by rung.
        fractions: number of finite elements that are no integers; None where it was not counted.
    """

    nan: int
    posinf: int
    neginf: int
    low: float | None
    high: float | None
    above: dict[float, int]
    fractions: int | None = None

    @property
    def nonfinite(self) -> int:
        return self.nan + self.posinf + self.neginf


class Counter:
    """A session over a model that counts exactly in the tensors that need it.

    Args:
        rungs: by tensor, the bounds to count elements above.
        suspects: tensors that may hold NaN or Inf; the others are taken for finite and `low`, `high` of theirs are
            not looked at (None).
        integers: tensors in which fractions are counted.
        inner: sums inside nodes to measure, of `model`; non-finite elements count as nothing.
        replays: whose errors are measured, of `model`.
        given: tensors that are fed, too, so that what they are computed from need not run.
    """

    def __init__(
        self,
        model: ir.Model,
        rungs: Mapping[str, Sequence[float]],
        suspects: AbstractSet[str],
        *,
        integers: AbstractSet[str] = frozenset(),
        inner: Sequence[Reduction] = (),
        replays: Sequence[Replay] = (),
        given: Sequence[str] = (),
    ) -> None:
        tensors = [*rungs, *sorted(integers - rungs.keys())]
        self._rungs = {name: [float(bound) for bound in rungs.get(name, ())] for name in tensors}
        self._suspects = [name for name in tensors if name in suspects]
        self._integers = [name for name in tensors if name in integers]
        graph = Instrumented(model, given)
        for name in tensors:
            self._count(graph, name)
        for each in inner:
            report_inner(graph, each, str(each.source.name) in suspects)
        report_replays(graph, replays, lambda end: any(value.name in suspects for value in end.outputs))
        self._session = graph.open([])

    def _count(self, graph: Instrumented, name: str) -> None:
        place = graph.after(name)
        flat = place.flat(graph.value(name))
        if name in self._suspects:
            _report_nonfinite(place, flat)
        for bound in self._rungs[name]:
            place.report_count("above", _beyond(place, flat, bound))
        if name in self._integers:
            whole = place.node("Floor", [flat])
            over, under = place.node("Greater", [flat, whole]), place.node("Less", [flat, whole])
            place.report_count("fractions", place.node("Or", [over, under]))

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Counts]:
        return self.measure(feeds)[0]

    def measure(self, feeds: Mapping[str, np.ndarray]) -> tuple[dict[str, Counts], list[float | None], list[float]]:
        """Counts by tensor, the largest value of each inner sum (None: there is no element), errors of the replays."""
        _, columns = self._session.run(feeds)
        above, fractions = iter(columns.get("above", ())), iter(columns.get("fractions", ()))
        facts = {name: _nonfinite(columns, i) for i, name in enumerate(self._suspects)}
        result = {}
        for name, bounds in self._rungs.items():
            nan, posinf, neginf, low, high = facts.get(name, (0, 0, 0, None, None))
            counted = {bound: int(next(above)) - posinf - neginf for bound in bounds}  # Inf > bound is true as well
            broken = int(next(fractions)) if name in self._integers else None
            result[name] = Counts(nan, posinf, neginf, low, high, counted, broken)
        return result, [bounded(value) for value in columns.get("inner", ())], errors(columns)


_Nonfinite = tuple[int, int, int, float | None, float | None]


def _beyond(place: InsertionPoint, flat: ir.Value, bound: float) -> ir.Value:
    """|x| > bound."""
    over = place.node("Greater", [flat, place.graph.constant(bound)])
    return place.node("Or", [over, place.node("Less", [flat, place.graph.constant(-bound)])])


def _report_nonfinite(place: InsertionPoint, flat: ir.Value) -> None:
    constant = place.graph.constant
    below, above = place.node("Less", [flat, constant(1.0)]), place.node("Greater", [flat, constant(-1.0)])
    place.report_count("nan", place.node("Not", [place.node("Or", [below, above])]))
    place.report_count("posinf", place.node("Greater", [flat, constant(LARGEST)]))
    place.report_count("neginf", place.node("Less", [flat, constant(-LARGEST)]))
    number = place.is_number(flat)
    place.report("low", "ReduceMin", place.node("Where", [number, flat, constant(math.inf)]))
    place.report("high", "ReduceMax", place.node("Where", [number, flat, constant(-math.inf)]))


def _nonfinite(columns: Mapping[str, np.ndarray], i: int) -> _Nonfinite:
    nan, posinf, neginf = (int(columns[key][i]) for key in ("nan", "posinf", "neginf"))
    low, high = float(columns["low"][i]), float(columns["high"][i])
    return (nan, posinf, neginf, low, high) if low <= high else (nan, posinf, neginf, None, None)


def _report_small(place: InsertionPoint, flat: ir.Value) -> None:
    """0 < |x| < Inf, and of these |x| <= 2^-25, |x| < 2^-14."""
    constant, magnitude = place.graph.constant, place.node("Abs", [flat])
    over = place.node("Greater", [magnitude, constant(0.0)])
    nonzero = place.node("And", [over, place.node("Less", [magnitude, constant(math.inf)])])
    kept = place.node("Greater", [magnitude, constant(LOST)])
    place.report_count("nonzero", nonzero)
    place.report_count("zero", place.node("And", [nonzero, place.node("Not", [kept])]))
    subnormal = place.node("Less", [magnitude, constant(NORMAL_MIN)])
    place.report_count("subnormal", place.node("And", [nonzero, subnormal]))


def _small(columns: Mapping[str, np.ndarray], i: int) -> SmallCounts:
    return SmallCounts(*(int(columns[key][i]) for key in ("nonzero", "zero", "subnormal")))
