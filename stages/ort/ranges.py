"""Statistics of inner tensors, reduced inside the graph: only scalars leave the session.

After the producer of every tensor x stand, on f = Reshape(x, [-1]):

    Scanner   ReduceMax(f)  ReduceMin(f)  ReduceSum(f)  Shape(f)
    Counter   extremes over finite elements, counts of NaN, +Inf, -Inf, and of |f| > rung

ReduceMax and ReduceMin lose a NaN that is not the first element; the sum never does, but it may overflow:

    max or min not finite                    f holds NaN or Inf
    both finite, sum not NaN                 f is finite (a sum of Inf is an overflow)
    both finite, sum NaN                     NaN, or sums of both signs that overflowed: to be counted exactly

ONNX Runtime's default order would leave all reductions to the end and so hold every activation; PRIORITY_BASED takes
nodes in the order of the file. Its search for buffers to reuse takes time that grows with the square of the nodes
(half a minute for 4000), so it is off.

Tensors inside subgraphs (If, Loop, Scan) cannot be outputs of the graph and are not measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
import onnx_ir.passes.common as common_passes

from stages.io import StageError
from stages.ort.session import Session

_FLOAT = ir.DataType.FLOAT
_OPSET_MIN = 10  # IsInf


def float_tensors(model: ir.Model) -> list[str]:
    """Names of the FLOAT tensors that `model` computes or is fed, in graph order; constants are left out.

    Raises:
        StageError: when a type is unknown after shape inference.
    """
    values = [value for value in model.graph.inputs if not value.is_initializer()]
    values += [output for node in model.graph if node.op_type != "Constant" for output in node.outputs if output.name]
    if any(value.type is None for value in values):
        common_passes.ShapeInferencePass(check_type=False, strict_mode=False, data_prop=False)(model)
    for value in values:
        if value.type is None:
            raise StageError(f"ranges: the type of {value.name!r} is unknown; add value_info for it")
    return [str(value.name) for value in values if value.type == ir.TensorType(_FLOAT)]


# --- first look: extremes ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scan:
    """One run over the scanned tensors; arrays [tensors], in the scanner's order.

    Attributes:
        outputs: the model's own outputs.
        low, high: float32; true extremes where the tensor is neither a suspect nor empty.
        elements: int64.
        nonfinite: bool; the tensor is known to hold NaN or Inf.
        unsure: bool; it may hold NaN.
    """

    outputs: dict[str, np.ndarray]
    low: np.ndarray
    high: np.ndarray
    elements: np.ndarray
    nonfinite: np.ndarray
    unsure: np.ndarray

    @property
    def suspect(self) -> np.ndarray:
        """bool: where False, the tensor is finite."""
        either: np.ndarray = self.nonfinite | self.unsure
        return either


class Scanner:
    """A session over a model with extremes of `tensors` as extra outputs."""

    def __init__(self, model: ir.Model, tensors: Sequence[str], **options: Any) -> None:
        self.tensors = list(tensors)
        graph = _Instrumented(model)
        for name in self.tensors:
            place = graph.after(name)
            place.report("low", "ReduceMin", [place.flat], _REDUCE)
            place.report("high", "ReduceMax", [place.flat], _REDUCE)
            place.report("total", "ReduceSum", [place.flat], _REDUCE)
            place.report("elements", "Shape", [place.flat])
        self._session = graph.open(**options)

    def run(self, feeds: Mapping[str, np.ndarray]) -> Scan:
        outputs, columns = self._session.run(feeds)
        low, high, total, elements = (columns[key] for key in ("low", "high", "total", "elements"))
        bounded = np.isfinite(low) & np.isfinite(high)
        nonfinite = ~bounded & (elements > 0)
        return Scan(outputs, low, high, elements, nonfinite, unsure=bounded & np.isnan(total))


# --- second look: exact counts ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Counts:
    """Exact facts of one tensor in one run.

    Attributes:
        nan, posinf, neginf: numbers of elements.
        low, high: extremes of the finite elements; None when there is none.
        above: numbers of finite elements with |x| > rung, by rung.
    """

    nan: int
    posinf: int
    neginf: int
    low: float | None
    high: float | None
    above: dict[float, int]

    @property
    def nonfinite(self) -> int:
        return self.nan + self.posinf + self.neginf

    @property
    def absmax(self) -> float | None:
        """Largest |x| of the finite elements."""
        return None if self.low is None or self.high is None else max(abs(self.low), abs(self.high))


class Counter:
    """A session over a model that counts exactly in the tensors that need it.

    Args:
        rungs: by tensor, the bounds to count elements above.
        suspects: tensors that may hold NaN or Inf; the others are taken for finite and `low`, `high` of theirs are
            not looked at (None).
    """

    def __init__(
        self, model: ir.Model, rungs: Mapping[str, Sequence[float]], suspects: AbstractSet[str], **options: Any
    ) -> None:
        self._rungs = {name: list(bounds) for name, bounds in rungs.items()}
        self._suspects = [name for name in self._rungs if name in suspects]
        graph = _Instrumented(model)
        for name, bounds in self._rungs.items():
            place = graph.after(name)
            if name in suspects:
                self._report_nonfinite(place)
            for bound in bounds:
                over = place.node("Greater", [place.flat, graph.constant(bound)])
                under = place.node("Less", [place.flat, graph.constant(-bound)])
                place.report_count("above", place.node("Or", [over, under]))
        self._session = graph.open(**options)

    @staticmethod
    def _report_nonfinite(place: _Place) -> None:
        graph, flat = place.graph, place.flat
        is_nan, is_inf = place.node("IsNaN", [flat]), place.node("IsInf", [flat])
        place.report_count("nan", is_nan)
        place.report_count("inf", is_inf)
        place.report_count("posinf", place.node("IsInf", [flat], {"detect_negative": 0}))
        is_nonfinite = place.node("Or", [is_nan, is_inf])
        low = place.node("Where", [is_nonfinite, graph.constant(np.inf), flat])
        place.report("low", "ReduceMin", [low], _REDUCE)
        high = place.node("Where", [is_nonfinite, graph.constant(-np.inf), flat])
        place.report("high", "ReduceMax", [high], _REDUCE)

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Counts]:
        _, columns = self._session.run(feeds)
        above = iter(columns.get("above", ()))
        facts = {name: self._nonfinite(columns, i) for i, name in enumerate(self._suspects)}
        result = {}
        for name, bounds in self._rungs.items():
            nan, posinf, neginf, low, high = facts.get(name, (0, 0, 0, None, None))
            counted = {bound: int(next(above)) - posinf - neginf for bound in bounds}  # Inf > bound is true as well
            result[name] = Counts(nan, posinf, neginf, low, high, counted)
        return result

    @staticmethod
    def _nonfinite(columns: Mapping[str, np.ndarray], i: int) -> tuple[int, int, int, float | None, float | None]:
        nan, inf, posinf = (int(columns[key][i]) for key in ("nan", "inf", "posinf"))
        low, high = float(columns["low"][i]), float(columns["high"][i])
        if low > high:  # no finite element
            return nan, posinf, inf - posinf, None, None
        return nan, posinf, inf - posinf, low, high


def nonfinite_tensors(model: ir.Model, feeds: Mapping[str, np.ndarray], tensors: Sequence[str], scan: Scan) -> set[str]:
    """Which of `tensors` hold NaN or Inf, given their scan on `feeds`; runs again for those it is unsure of."""
    known = {name for name, nonfinite in zip(tensors, scan.nonfinite, strict=True) if nonfinite}
    unsure = {name for name, unsure in zip(tensors, scan.unsure, strict=True) if unsure}
    if not unsure:
        return known
    counts = Counter(model, {name: () for name in tensors if name in unsure}, unsure).run(feeds)
    return known | {name for name, count in counts.items() if count.nonfinite}


# --- where non-finite values come from --------------------------------------------------------------------------------


def origins(model: ir.Model, nonfinite: AbstractSet[str], targets: Iterable[str]) -> list[ir.Value]:
    """Values in `nonfinite` whose producer reads none of them, and which reach a target through such values only.

    Graph inputs and constants are origins too. In graph order.
    """
    order = _main_values(model)
    found: set[str] = set()
    seen: set[str] = set()
    waiting = [name for name in targets if name in nonfinite]
    while waiting:
        name = waiting.pop()
        if name in seen or name not in order:
            continue
        seen.add(name)
        sources = [source for source in _read_by_producer(order[name]) if source in nonfinite]
        if not sources:
            found.add(name)
        waiting += sources
    return [value for name, value in order.items() if name in found]


def nonfinite_constants(model: ir.Model) -> set[str]:
    """Names of initializers and Constant outputs that hold NaN or Inf."""
    found = set()
    for name, value in _main_values(model).items():
        tensor = ir.convenience.get_const_tensor(value)
        if tensor is not None and tensor.dtype.is_floating_point() and not np.isfinite(tensor.numpy()).all():
            found.add(name)
    return found


def _main_values(model: ir.Model) -> dict[str, ir.Value]:
    graph = model.graph
    values = [*graph.inputs, *graph.initializers.values(), *(output for node in graph for output in node.outputs)]
    return {str(value.name): value for value in values if value.name}


def _read_by_producer(value: ir.Value) -> list[str]:
    """What the producer reads, inside its subgraphs too."""
    producer = value.producer()
    if producer is None:
        return []
    read = [source for source in producer.inputs if source is not None]
    for attribute in producer.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            for node in ir.traversal.RecursiveGraphIterator(attribute.as_graph()):
                read += [source for source in node.inputs if source is not None]
    return [str(source.name) for source in read]


# --- the graph with its reductions ------------------------------------------------------------------------------------

_REDUCE = {"keepdims": 1}


class _Instrumented:
    """A copy of a model that takes reductions beside its tensors and reports them, one vector per key."""

    def __init__(self, model: ir.Model) -> None:
        opset = model.graph.opset_imports.get("", 0)
        if opset < _OPSET_MIN:
            raise StageError(f"ranges: the model has opset {opset}; expected {_OPSET_MIN} or later; export it anew")
        self.model = model.clone()
        self.graph = self.model.graph
        self._values = _main_values(self.model)
        self.prefix = "range"
        while any(name.startswith(self.prefix) for name in self._values):
            self.prefix += "_"
        self._own_outputs = [str(value.name) for value in self.graph.outputs]
        self._constants: dict[str, ir.Value] = {}
        self._reports: dict[str, list[ir.Value]] = {}
        self._places = 0

    def after(self, tensor: str) -> _Place:
        self._places += 1
        return _Place(self, self._values[tensor], f"{self.prefix}/{self._places}")

    def constant(self, number: float | list[int]) -> ir.Value:
        """A FLOAT scalar, or an INT64 vector."""
        dtype = np.int64 if isinstance(number, list) else np.float32
        name = f"{self.prefix}/constant/{number}"
        if name not in self._constants:
            value = ir.val(name, const_value=ir.tensor(np.array(number, dtype), name=name))
            self.graph.register_initializer(value)
            self._constants[name] = value
        return self._constants[name]

    def add_report(self, key: str, value: ir.Value) -> None:
        self._reports.setdefault(key, []).append(value)

    def open(self, **options: Any) -> _ReportingSession:
        import onnxruntime as ort

        for key, values in self._reports.items():
            node = ir.node("Concat", values, {"axis": 0}, name=f"{self.prefix}/{key}")
            node.outputs[0].name = f"{self.prefix}/{key}"
            node.outputs[0].type = values[0].type
            node.outputs[0].shape = ir.Shape([len(values)])
            self.graph.append(node)
            self.graph.outputs.append(node.outputs[0])
        order = ort.ExecutionOrder.PRIORITY_BASED
        session = Session(self.model, execution_order=order, enable_mem_reuse=False, **options)
        return _ReportingSession(session, self._own_outputs, {f"{self.prefix}/{key}": key for key in self._reports})


class _Place:
    """Where the reductions of one tensor are inserted: behind its producer, one after the other."""

    def __init__(self, graph: _Instrumented, value: ir.Value, name: str) -> None:
        self.graph = graph
        self._name = name
        self._count = 0
        self._last = value.producer()
        self.flat = self.node("Reshape", [value, graph.constant([-1])])

    def node(self, op_type: str, inputs: list[ir.Value], attributes: Mapping[str, int] | None = None) -> ir.Value:
        self._count += 1
        node = ir.node(op_type, inputs, attributes or {}, name=f"{self._name}/{self._count}/{op_type}")
        node.outputs[0].name = node.name
        if self._last is None:
            first = next(iter(self.graph.graph), None)
            self.graph.graph.append(node) if first is None else self.graph.graph.insert_before(first, node)
        else:
            self.graph.graph.insert_after(self._last, node)
        self._last = node
        return node.outputs[0]

    def report(
        self, key: str, op_type: str, inputs: list[ir.Value], attributes: Mapping[str, int] | None = None
    ) -> None:
        """Report the [1] value that `op_type` makes."""
        value = self.node(op_type, inputs, attributes)
        value.type = ir.TensorType(ir.DataType.INT64 if op_type == "Shape" else _FLOAT)
        self.graph.add_report(key, value)

    def report_count(self, key: str, where: ir.Value) -> None:
        """Report how many elements of a BOOL vector are true."""
        ones = self.node("Cast", [where], {"to": int(ir.DataType.INT32)})
        count = self.node("ReduceSum", [ones], _REDUCE)
        count.type = ir.TensorType(ir.DataType.INT32)
        self.graph.add_report(key, count)


class _ReportingSession:
    def __init__(self, session: Session, own_outputs: list[str], keys: Mapping[str, str]) -> None:
        self._session, self._own_outputs, self._keys = session, own_outputs, keys

    def run(self, feeds: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """The model's own outputs, and the reported vectors by key."""
        values = self._session.run(feeds)
        own = {name: values[name] for name in self._own_outputs}
        return own, {key: values[name] for name, key in self._keys.items()}
