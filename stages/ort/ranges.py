"""Statistics of inner tensors, reduced inside the graph: only scalars leave the session.

After the producer of every tensor x stand, on f = Reshape(x, [-1]):

    Scanner   ReduceMax(f)  ReduceMin(f)  ReduceSum(f)  Shape(f)
    Counter   the same over finite elements, counts of NaN, +Inf, -Inf, and of |f| > rung

ReduceMax and ReduceMin lose a NaN that is not the first element; the sum never does. So a tensor whose maximum, minimum
and sum are all finite holds no NaN and no Inf. A tensor with any of the three not finite is a suspect (its sum alone
may have overflowed), to be counted exactly. ONNX Runtime's default order would leave all reductions to the end and so
hold every activation; execution_order = PRIORITY_BASED takes nodes in the order of the file.

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
        low, high: float32; true extremes unless the tensor is a suspect or empty.
        elements: int64.
        suspect: bool; the tensor may hold NaN or Inf. Where it is False it holds neither.
    """

    outputs: dict[str, np.ndarray]
    low: np.ndarray
    high: np.ndarray
    elements: np.ndarray
    suspect: np.ndarray


class Scanner:
    """A session over a model with extremes of `tensors` as extra outputs."""

    def __init__(self, model: ir.Model, tensors: Sequence[str], **options: Any) -> None:
        self.tensors = list(tensors)
        graph = _Instrumented(model)
        for name in self.tensors:
            with_value = graph.after(name)
            flat = with_value.flat
            with_value.report("low", "ReduceMin", [flat], _REDUCE)
            with_value.report("high", "ReduceMax", [flat], _REDUCE)
            with_value.report("total", "ReduceSum", [flat], _REDUCE)
            with_value.report("elements", "Shape", [flat])
        self._session = graph.open(**options)

    def run(self, feeds: Mapping[str, np.ndarray]) -> Scan:
        outputs, columns = self._session.run(feeds)
        low, high, total, elements = (columns[key] for key in ("low", "high", "total", "elements"))
        finite = np.isfinite(low) & np.isfinite(high) & np.isfinite(total)
        return Scan(outputs, low, high, elements, ~finite & (elements > 0))


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
            with_value = graph.after(name)
            finite = self._count_nonfinite(with_value) if name in suspects else with_value.flat
            if bounds:
                magnitude = with_value.node("Abs", [finite])
                for bound in bounds:
                    above = with_value.node("Greater", [magnitude, graph.constant(bound)])
                    with_value.report_count("above", above)
        self._session = graph.open(**options)

    @staticmethod
    def _count_nonfinite(at: _Place) -> ir.Value:
        graph, flat = at.graph, at.flat
        is_nan = at.node("IsNaN", [flat])
        is_nonfinite = at.node("Or", [is_nan, at.node("IsInf", [flat])])
        at.report_count("nan", is_nan)
        at.report_count("posinf", at.node("IsInf", [flat], {"detect_negative": 0}))
        at.report_count("neginf", at.node("IsInf", [flat], {"detect_positive": 0}))
        low = at.node("Where", [is_nonfinite, graph.constant(np.inf), flat])
        high = at.node("Where", [is_nonfinite, graph.constant(-np.inf), flat])
        at.report("low", "ReduceMin", [low], _REDUCE)
        at.report("high", "ReduceMax", [high], _REDUCE)
        return at.node("Where", [is_nonfinite, graph.constant(0.0), flat])

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Counts]:
        _, columns = self._session.run(feeds)
        suspects = {name: i for i, name in enumerate(self._suspects)}
        above = iter(columns.get("above", ()))
        result = {}
        for name, bounds in self._rungs.items():
            counted = {bound: int(next(above)) for bound in bounds}
            i = suspects.get(name)
            if i is None:
                result[name] = Counts(0, 0, 0, None, None, counted)
                continue
            nan, posinf, neginf = (int(columns[key][i]) for key in ("nan", "posinf", "neginf"))
            low, high = (float(columns[key][i]) for key in ("low", "high"))
            none_finite = not np.isfinite(low)
            result[name] = Counts(
                nan, posinf, neginf, None if none_finite else low, None if none_finite else high, counted
            )
        return result


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
        name = f"{self.prefix}/{number}"
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
        session = Session(self.model, execution_order=ort.ExecutionOrder.PRIORITY_BASED, **options)
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
        ones = self.node("Cast", [where], {"to": int(ir.DataType.INT64)})
        count = self.node("ReduceSum", [ones], _REDUCE)
        count.type = ir.TensorType(ir.DataType.INT64)
        self.graph.add_report(key, count)


class _ReportingSession:
    def __init__(self, session: Session, own_outputs: list[str], keys: Mapping[str, str]) -> None:
        self._session, self._own_outputs, self._keys = session, own_outputs, keys

    def run(self, feeds: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """The model's own outputs, and the reported vectors by key."""
        values = self._session.run(feeds)
        own = {name: values[name] for name in self._own_outputs}
        return own, {key: values[name] for name, key in self._keys.items()}
