"""A copy of a model with reductions beside its tensors: only scalars leave the session, one vector per key.

ONNX Runtime's default order would leave all reductions to the end and so hold every activation; PRIORITY_BASED takes
nodes in the order of the file, as long as no optimisation renumbers them: what one makes anew comes last, and what it
feeds is held until then. So all optimisations are off; in a graph that runs a few times they take longer than they save
anyway. The search for buffers to reuse takes time that grows with the square of the nodes (half a minute for 4000), so
it is off; so are memory patterns, which hold a second arena for every shape of feeds. Weights that are used once or
twice are not worth packing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from truehalf.ir.facts import After, reached, values_of, values_read
from truehalf.runtime.ort import Session

_FLOAT = ir.DataType.FLOAT
Attributes = Mapping[str, int | float | str | Sequence[int] | ir.Graph | ir.Attr]  # of a node
KEEP = {"keepdims": 1}
LARGEST = float(np.finfo(np.float32).max)
_OPSET = 17


class Instrumented:
    """See above.

    Args:
        model: left as it is.

    Attributes:
        opset: of the model's operators.
    """

    def __init__(self, model: ir.Model) -> None:
        self.model = model.clone()
        self.graph = self.model.graph
        self.opset = self.graph.opset_imports.setdefault("", _OPSET)  # a model of only other domains has none
        self._values = main_values(self.model)
        self.prefix = "range"
        while any(name.startswith(self.prefix) for name in self._values):
            self.prefix += "_"
        self._constants: dict[str, ir.Value] = {}
        self._reports: dict[str, list[ir.Value]] = {}
        self._places = 0

    def value(self, name: str) -> ir.Value:
        return self._values[name]

    def after(self, tensor: str) -> InsertionPoint:
        """As soon as a tensor is there."""
        self._places += 1
        return InsertionPoint(self, self._values[tensor].producer(), f"{self.prefix}/{self._places}")

    def constant(self, number: float | Sequence[int]) -> ir.Value:
        """A FLOAT scalar, or an INT64 vector."""
        array = np.array(number, np.float32 if isinstance(number, float) else np.int64)
        name = f"{self.prefix}/constant/{array.dtype}/{array.tolist()}"
        if name not in self._constants:
            value = ir.val(name, const_value=ir.tensor(array, name=name))
            self.graph.register_initializer(value)
            self._constants[name] = value
        return self._constants[name]

    def add_report(self, key: str, value: ir.Value) -> None:
        self._reports.setdefault(key, []).append(value)

    def open(self, outputs: Iterable[str], **options: Any) -> ReportingSession:
        """A session that computes `outputs` and the reports, and nothing that neither needs."""
        import onnxruntime as ort

        names = list(dict.fromkeys(outputs))
        self.graph.outputs.clear()
        self.graph.outputs.extend(self._values[name] for name in names)
        for key, values in self._reports.items():
            node = ir.node("Concat", values, {"axis": 0}, name=f"{self.prefix}/{key}")
            node.outputs[0].name = f"{self.prefix}/{key}"
            node.outputs[0].type = values[0].type
            self.graph.append(node)
            self.graph.outputs.append(node.outputs[0])
        dropped = _prune(self.graph)
        settings = {
            "execution_order": ort.ExecutionOrder.PRIORITY_BASED,
            "enable_mem_reuse": False,
            "enable_mem_pattern": False,
            "graph_optimization_level": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
            "session.disable_prepacking": "1",
        }
        session = Session(self.model, **(settings | options))
        return ReportingSession(session, names, {f"{self.prefix}/{key}": key for key in self._reports}, dropped)


class InsertionPoint:
    """Where the reductions of one tensor are inserted: after a node (None: before all), one after the other."""

    def __init__(self, graph: Instrumented, node: ir.Node | None, name: str) -> None:
        self.graph = graph
        self._name, self._place = name, After(graph.graph, node)
        self._count = 0

    def node(
        self, op_type: str, inputs: Sequence[ir.Value | None], attributes: Attributes | None = None, outputs: int = 1
    ) -> ir.Value:
        """A new node; its first output."""
        self._count += 1
        name = f"{self._name}/{self._count}/{op_type}"
        node = ir.node(op_type, inputs, attributes or {}, num_outputs=outputs, name=name)
        for index, value in enumerate(node.outputs):
            value.name = f"{name}/{index}" if index else name
        self._place.insert(node)
        return node.outputs[0]

    def flat(self, value: ir.Value) -> ir.Value:
        return self.node("Reshape", [value, self.graph.constant([-1])])

    def reduced(self, op_type: str, value: ir.Value, axes: Sequence[int] | None) -> ir.Value:
        """A Reduce operator over some axes (None: all), which stay with length 1."""
        if axes is None:
            return self.node(op_type, [value], KEEP)
        if "axes" not in onnx.defs.get_schema(op_type, self.graph.opset).attributes:
            return self.node(op_type, [value, self.graph.constant(list(axes))], KEEP)
        return self.node(op_type, [value], {**KEEP, "axes": ir.AttrInt64s("axes", axes)})

    def report(self, key: str, op_type: str, value: ir.Value, axes: Sequence[int] | None = None) -> None:
        """Report the [1] value that `op_type` makes of a vector; of some axes, one column for each element left."""
        made = self.node(op_type, [value]) if op_type == "Shape" else self.reduced(op_type, value, axes)
        made.type = ir.TensorType(ir.DataType.INT64 if op_type == "Shape" else _FLOAT)
        self.graph.add_report(key, made)


class ReportingSession:
    """What `Instrumented.open` gives."""

    def __init__(self, session: Session, outputs: list[str], keys: Mapping[str, str], dropped: set[str]) -> None:
        self._session, self._outputs, self._keys, self._dropped = session, outputs, keys, dropped

    def run(self, feeds: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """The outputs that were asked for, and the reported vectors by key."""
        values = self._session.run(self._left(feeds))
        return {name: values[name] for name in self._outputs}, {key: values[name] for name, key in self._keys.items()}

    def _left(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {name: array for name, array in feeds.items() if name not in self._dropped}


def main_values(model: ir.Model) -> dict[str, ir.Value]:
    """The values of the main graph by name: inputs, initializers, what nodes write."""
    return {value.name: value for value in values_of(model.graph) if value.name}


def _prune(graph: ir.Graph) -> set[str]:
    """Remove the nodes, inputs and initializers that no output needs; returns the names of the inputs."""

    def read(value: ir.Value) -> Iterable[ir.Value]:
        node = value.producer()
        return () if node is None else values_read(node)

    needed = set(reached(graph.outputs, read))
    graph.remove([node for node in graph if needed.isdisjoint(node.outputs)])
    inputs = [value for value in graph.inputs if value in needed]
    dropped = {str(value.name) for value in graph.inputs if value not in needed}
    graph.inputs.clear()
    graph.inputs.extend(inputs)
    for name in [name for name, value in graph.initializers.items() if value not in needed]:
        del graph.initializers[name]
    return dropped
