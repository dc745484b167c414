"""Statistics of inner tensors, reduced inside the graph: only scalars leave the session.

After the producer of every tensor x stand, on f = Reshape(x, [-1]):

    Scanner   ReduceMax(f)  ReduceMin(f)  ReduceSum(f)  Shape(f)
    Counter   extremes over finite elements, counts of NaN, +Inf, -Inf

ReduceMax and ReduceMin lose a NaN that is not the first element; the sum never does, but it may overflow:

    max or min not finite                    f holds NaN or Inf
    both finite, sum not NaN                 f is finite (a sum of Inf is an overflow)
    both finite, sum NaN                     NaN, or sums of both signs that overflowed: to be counted exactly

All counts are made of Greater, Less and Where (opset 9): a NaN is neither below 1 nor above -1, an Inf is above
every float.

Tensors inside subgraphs cannot be outputs of the graph and are not measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
import onnx_ir.passes.common as common_passes

from truehalf.calibration.hazards import Reduction
from truehalf.calibration.instrument import LARGEST, InsertionPoint, Instrumented, main_values
from truehalf.calibration.sums import bounded, report_inner
from truehalf.errors import StageError
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
        raise StageError("sizes-unknown", f"ranges: the type of {unknown[0]!r} is unknown; add value_info for it")
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
class Scan:
    """One run over the scanned tensors; arrays [tensors], in the scanner's order.

    Attributes:
        outputs: the model's outputs.
        low, high: float32; true extremes where the tensor is neither a suspect nor empty.
        elements: int64.
        nonfinite: bool; the tensor is known to hold NaN or Inf.
        unsure: bool; it may hold NaN.
        inner: the largest value of each sum inside a node; None: there is no element, or only NaN.
    """

    outputs: dict[str, np.ndarray]
    low: np.ndarray
    high: np.ndarray
    elements: np.ndarray
    nonfinite: np.ndarray
    unsure: np.ndarray
    inner: list[float | None]

    @property
    def suspect(self) -> np.ndarray:
        """bool: where False, the tensor is finite."""
        either: np.ndarray = self.nonfinite | self.unsure
        return either


class Scanner:
    """A session over a model: extremes of `tensors`, and sums inside nodes of `model`."""

    def __init__(self, model: ir.Model, tensors: Sequence[str], inner: Sequence[Reduction] = ()) -> None:
        self.tensors = list(tensors)
        self._outputs = [str(value.name) for value in model.graph.outputs]
        graph = Instrumented(model)
        for name in self.tensors:
            place = graph.after(name)
            flat = place.flat(graph.value(name))
            place.report("low", "ReduceMin", flat)
            place.report("high", "ReduceMax", flat)
            place.report("total", "ReduceSum", flat)
            place.report("elements", "Shape", flat)
        for each in inner:
            report_inner(graph, each)
        self._session = graph.open(self._outputs)

    def run(self, feeds: Mapping[str, np.ndarray]) -> Scan:
        outputs, columns = self._session.run(feeds)
        nothing = np.zeros(0, np.float32)
        low, high, total = (columns.get(key, nothing) for key in ("low", "high", "total"))
        elements = columns.get("elements", np.zeros(0, np.int64))
        bounded_ = np.isfinite(low) & np.isfinite(high)
        nonfinite = ~bounded_ & (elements > 0)
        inner = [bounded(value) for value in columns.get("inner", ())]
        return Scan(outputs, low, high, elements, nonfinite, bounded_ & np.isnan(total), inner)


# --- second look: exact counts ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Counts:
    """Exact facts of one tensor in one run.

    Attributes:
        nan, posinf, neginf: numbers of elements.
        low, high: extremes of the finite elements; None when there is none.
    """

    nan: int
    posinf: int
    neginf: int
    low: float | None
    high: float | None

    @property
    def nonfinite(self) -> int:
        return self.nan + self.posinf + self.neginf


class Counter:
    """A session over a model that counts exactly in tensors that may hold NaN or Inf."""

    def __init__(self, model: ir.Model, tensors: Iterable[str]) -> None:
        self._tensors = list(tensors)
        graph = Instrumented(model)
        for name in self._tensors:
            place = graph.after(name)
            _report_nonfinite(place, place.flat(graph.value(name)))
        self._session = graph.open([])

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Counts]:
        _, columns = self._session.run(feeds)
        return {name: _nonfinite(columns, i) for i, name in enumerate(self._tensors)}


def _report_nonfinite(place: InsertionPoint, flat: ir.Value) -> None:
    constant = place.graph.constant
    below, above = place.node("Less", [flat, constant(1.0)]), place.node("Greater", [flat, constant(-1.0)])
    place.report_count("nan", place.node("Not", [place.node("Or", [below, above])]))
    place.report_count("posinf", place.node("Greater", [flat, constant(LARGEST)]))
    place.report_count("neginf", place.node("Less", [flat, constant(-LARGEST)]))
    number = place.is_number(flat)
    place.report("low", "ReduceMin", place.node("Where", [number, flat, constant(math.inf)]))
    place.report("high", "ReduceMax", place.node("Where", [number, flat, constant(-math.inf)]))


def _nonfinite(columns: Mapping[str, np.ndarray], i: int) -> Counts:
    nan, posinf, neginf = (int(columns[key][i]) for key in ("nan", "posinf", "neginf"))
    low, high = float(columns["low"][i]), float(columns["high"][i])
    return Counts(nan, posinf, neginf, *((low, high) if low <= high else (None, None)))
