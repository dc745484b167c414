"""Statistics of inner tensors, reduced inside the graph: only scalars leave the session.

After the producer of every tensor x stand, on f = Reshape(x, [-1]):

    ReduceMax(f)  ReduceMin(f)  ReduceSum(f)  Shape(f)

ReduceMax and ReduceMin lose a NaN that is not the first element; the sum never does. Where one of the three is NaN, or
an extreme Inf, the tensor is not finite. (A sum of finite elements is NaN only where both signs overflow in it.)

Tensors inside subgraphs cannot be outputs of the graph and are not measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
import onnx_ir.passes.common as common_passes

from truehalf.calibration.instrument import Instrumented, main_values
from truehalf.calibration.sums import Reduction, bounded, report_inner
from truehalf.ir.ops import Trait, has

_FLOAT = ir.DataType.FLOAT


def float_tensors(model: ir.Model) -> tuple[list[str], list[str]]:
    """Names of the FLOAT tensors that a model computes or is fed, in graph order, constants left out; and names of
    those whose type is not known. Types that can be inferred are filled in.
    """
    values = [value for value in model.graph.inputs if not value.is_initializer()]
    values += [output for node in model.graph if node.op_type != "Constant" for output in node.outputs if output.name]
    if any(value.type is None for value in values):
        common_passes.ShapeInferencePass(check_type=False, strict_mode=False, data_prop=False)(model)
    untyped = [str(value.name) for value in values if value.type is None]
    return [str(value.name) for value in values if value.type == ir.TensorType(_FLOAT)], untyped


def roots(model: ir.Model, tensors: Iterable[str]) -> dict[str, str]:
    """For each tensor the one whose elements it holds, perhaps in another order: all that is measured is the same."""
    values = main_values(model)
    found: dict[str, str] = {}
    for name in tensors:
        node = values[name].producer()
        source = node.inputs[0] if node is not None and has(node, Trait.PERMUTES) else None
        found[name] = found.get(str(source.name), name) if source is not None else name
    return found


@dataclass(frozen=True)
class Scan:
    """One run over the scanned tensors; arrays [tensors], in the scanner's order.

    Attributes:
        outputs: the model's outputs.
        low, high: float32; true extremes where the tensor is finite and not empty.
        elements: int64.
        nonfinite: bool; the tensor holds NaN or Inf.
        inner: the largest value of each sum inside a node; None: there is no element, or only NaN.
    """

    outputs: dict[str, np.ndarray]
    low: np.ndarray
    high: np.ndarray
    elements: np.ndarray
    nonfinite: np.ndarray
    inner: list[float | None]


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
        is_finite = np.isfinite(low) & np.isfinite(high) & ~np.isnan(total)
        inner = [bounded(value) for value in columns.get("inner", ())]
        return Scan(outputs, low, high, elements, ~is_finite & (elements > 0), inner)
