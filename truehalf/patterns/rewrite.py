"""Replacement of one node by new ones, with its outputs' names, types and consumers kept.

    node(inputs) -> old   becomes   new nodes before it,  new takes the name, the users and the graph outputs of old

New nodes stand where the old one stood, so a sorted graph stays sorted. They are called `<old name>.<label>`: the
scope, the part before the last slash, is that of the old node, and so are its metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from truehalf.ir.facts import constant_of, values_read, with_subgraphs
from truehalf.ir.normalize import Names
from truehalf.ir.passes import Done


class NotEqualError(Exception):
    """Raised with the reason why a rewritten graph would not be equal."""


def fix_each(writer: Writer, nodes: Iterable[ir.Node | None], rewrite: Callable[[ir.Node], None]) -> None:
    """Rewrite nodes of a typed model one after the other; a NotEqualError leaves one as it is, and is recorded."""
    for node in nodes:
        if node is not None and node.graph is not None:  # else it went with another
            try:
                rewrite(node)
            except NotEqualError as reason:
                writer.done.refuse(node, str(reason))


class Writer:
    """Makes nodes and constants for one run of a pass; equal constants of one graph are one initializer.

    Attributes:
        model, opset: of the file that it writes to.
        done: counts and refusals.
        names: all of the model.
    """

    def __init__(self, model: ir.Model, done: Done) -> None:
        self.model, self.opset = model, model.graph.opset_imports.get("", 0)
        self.names, self.done = Names(model), done
        self._constants: dict[tuple[int, str, tuple[int, ...], bytes], ir.Value] = {}

    def replace(self, node: ir.Node, *results: ir.Value) -> None:
        """Let `results` stand for the outputs of a node, and remove it with everything that only it read.

        A result that a node before it made for something else keeps its name; a graph output then gets an Identity.
        """
        for old, new in zip(node.outputs, results, strict=True):
            name, is_output = old.name, old.is_graph_output()
            taken = new.producer() is None or bool(new.uses()) or new.is_graph_output()
            if is_output and taken:
                new = self.at(node).op("Identity", new)
                taken = False
            new.type = new.type or old.type
            new.shape = old.shape if new.shape is None or is_output else new.shape
            old.replace_all_uses_with(new, replace_graph_outputs=True)
            if not taken:
                old.name = self.names.fresh(f"{name}.before")
                new.name = name
        drop(*node.outputs)
        self.done.counts[node.op_type] += 1

    def at(self, node: ir.Node) -> Build:
        return Build(self, node)

    def constant(self, graph: ir.Graph, name: str, array: np.ndarray[Any, Any]) -> ir.Value:
        key = (id(graph), array.dtype.str, array.shape, array.tobytes())
        value = self._constants.get(key)
        if value is None or value.graph is not graph:  # dropped since, with the last node that read it
            tensor = ir.tensor(array, name=self.names.fresh(name))
            shape = ir.Shape(array.shape)
            value = ir.Value(name=tensor.name, type=ir.TensorType(tensor.dtype), shape=shape, const_value=tensor)
            graph.register_initializer(value)
            self._constants[key] = value
        return value


class Build:
    """New nodes before one node, named after it."""

    def __init__(self, writer: Writer, node: ir.Node) -> None:
        self.node, self._writer, self._graph = node, writer, graph_of(node)
        self._stem = node.name or f"{node.op_type}_{node.outputs[0].name}"

    def op(self, op_type: str, *inputs: ir.Value | None, count: int = 1, label: str = "", **attributes: Any) -> Any:
        """Insert a new node and return its value, or a list of `count` values."""
        made = ir.node(op_type, list(inputs), attributes, num_outputs=count)
        made.name = self._writer.names.fresh(f"{self._stem}.{label or op_type}")
        made.metadata_props.update(self.node.metadata_props)
        for output in made.outputs:
            output.name = self._writer.names.fresh(f"{made.name}_out")
        self._graph.insert_before(self.node, made)
        return made.outputs[0] if count == 1 else list(made.outputs)

    def constant(self, numbers: Any, dtype: ir.DataType, label: str = "constant") -> ir.Value:
        array = np.asarray(numbers).astype(dtype.numpy())
        return self._writer.constant(self._graph, f"{self._stem}.{label}", array)

    def ints(self, numbers: Any, label: str = "constant") -> ir.Value:
        return self.constant(numbers, ir.DataType.INT64, label)

    def floats(self, numbers: Any, label: str = "constant") -> ir.Value:
        return self.constant(numbers, ir.DataType.FLOAT, label)

    def cast(self, value: ir.Value, dtype: ir.DataType, label: str = "Cast") -> ir.Value:
        if value.dtype != dtype:
            value = self.op("Cast", value, label=label, to=int(dtype))
            value.type = ir.TensorType(dtype)
        return value


def drop(*values: ir.Value | None) -> None:
    """Remove nodes that write only unread values, with their subgraphs, and then those that became unread."""
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        if value is None or value.uses() or value.is_graph_output() or value.is_graph_input():
            continue
        node = value.producer()
        if node is None:
            if value.is_initializer() and value.graph is not None:
                value.graph.initializers.pop(value.name or "", None)
        elif node.graph is not None and not any(out.uses() or out.is_graph_output() for out in node.outputs):
            waiting += dict.fromkeys(values_read(node))
            for inner in with_subgraphs(node):
                for index in range(len(inner.inputs)):
                    inner.replace_input_with(index, None)
            node.graph.remove(node, safe=True)


# --- what a graph says ------------------------------------------------------------------------------------------------


def graph_of(node: ir.Node) -> ir.Graph:
    graph = node.graph
    assert isinstance(graph, ir.Graph), "nodes of functions are inlined before"
    return graph


def ints_of(value: ir.Value | None) -> list[int] | None:
    """Read a constant as integers; None for another value."""
    array = constant_of(value)
    return None if array is None or array.dtype.kind not in "iu" else [int(number) for number in array.ravel()]


def axes_of(node: ir.Node, rank: int | None) -> list[int] | None:
    """Read the axes of Squeeze or Unsqueeze, by attribute or input, not negative where the rank is known.

    Returns:
        [] where none are named; None where only a run knows them.
    """
    axes: Sequence[int] | None = node.attributes.get_ints("axes")
    if axes is None:
        axes = ints_of(node.inputs[1]) if len(node.inputs) > 1 and node.inputs[1] is not None else []
    return None if axes is None else [axis if rank is None else axis % rank for axis in axes]
