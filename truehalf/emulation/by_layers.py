"""Mixed graph that rounds where the layers of an engine end, and nowhere inside a layer.

With l(n) the layer of a node, a its FP32 result and t the type in which the layer stores its outputs,

    n -> m, l(n) = l(m)                   m reads a: a fused kernel keeps it in registers
    n -> m, l(n) /= l(m), t Half          m reads Cast(Cast(a, FLOAT16), FLOAT)
    n -> m, l(n) /= l(m), t Float         m reads a
    n -> m, m without layer, or output    the type that the file states

Nodes in a layer compute in FP32, as kernels do inside; what adds up term by term (truehalf.emulation.term_by_term) and
nodes without layer keep the file's types. A node that is in several layers reads in all of them and leaves the last.
Where a layer stores floats of two types, or of none that is known, the file's type of the value counts.

It says what a compiler that logs its layers made of the file, and not what a kernel does: which of the two emulations,
by node or by layer, is nearer to an engine is not known until both are measured beside one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from truehalf.emulation.emulate import infer_all_types, widen_attributes
from truehalf.emulation.term_by_term import RULES
from truehalf.errors import StageError
from truehalf.ir.facts import all_nodes, cast_node, insert_after, subgraphs
from truehalf.ir.inlining import InlineFunctions
from truehalf.ir.normalize import Names
from truehalf.ir.ops import adds_up
from truehalf.json_values import JsonObject

_HALF, _FLOAT = ir.DataType.FLOAT16, ir.DataType.FLOAT
_STORED = {frozenset({"Half"}): _HALF, frozenset({"Float"}): _FLOAT}
NAMED_MIN = 0.5  # of the nodes that layers name: where fewer are in the file, they are of another


@dataclass(frozen=True)
class ByLayers:
    """A mixed graph, and how much of it is by layers.

    Attributes:
        model: inputs, outputs and names of the file's values as they were.
        layers: that hold nodes of the file.
        in_layers, in_several, without_layer: nodes; the second are among the first.
        not_rounded: FP16 values of the file that stay within a layer, or that it stores as FP32.
        rounded: FP32 values of the file that a layer stores as FP16.
    """

    model: ir.Model = field(repr=False)
    layers: int
    in_layers: int
    in_several: int
    without_layer: int
    not_rounded: int
    rounded: int

    def counts(self) -> JsonObject:
        """All but the model."""
        return {name: value for name, value in vars(self).items() if name != "model"}


def by_layers(model: ir.Model, layer_table: Sequence[Mapping[str, object]]) -> ByLayers:
    """The mixed graph that `truehalf.emulation.emulate` then makes an FP32 graph of.

    Args:
        model: mixed FP16 and FP32; left as it is.
        layer_table: rows in the order of execution, of which `onnx_nodes` and `outputs` (TensorRT's names of types)
            are read, as engine reports have them (truehalf.runtime.tensorrt.versions.Layer).

    Raises:
        StageError: layers that name no nodes, or those of another file; as emulate.
    """
    model = model.clone()
    InlineFunctions()(model)
    infer_all_types(model)
    nodes, places = len(list(all_nodes(model))), _places(model, layer_table)
    rounding = _Rounding(model, places, [_stored(row) for row in layer_table])
    rounding.widen()
    return ByLayers(
        model,
        layers=len({layer for found in places.values() for layer in found}),
        in_layers=len(places),
        in_several=sum(len(found) > 1 for found in places.values()),
        without_layer=nodes - len(places),
        not_rounded=len(rounding.kept),
        rounded=len(rounding.narrowed),
    )


def _places(model: ir.Model, layer_table: Sequence[Mapping[str, object]]) -> dict[ir.Node, list[int]]:
    """The layers of each node, in order."""
    named: dict[str, list[int]] = {}
    for index, row in enumerate(layer_table):
        names = row.get("onnx_nodes")
        for name in names if isinstance(names, Sequence) else ():
            named.setdefault(str(name), []).append(index)
    nodes = {str(node.name): node for node in all_nodes(model) if node.name}
    found = {nodes[name]: layers for name, layers in named.items() if name in nodes}
    if not named:
        raise StageError("wrong-file", "layers: none of them names an ONNX node, so that no value can be placed")
    if len(found) < NAMED_MIN * len(named):
        raise StageError(
            "wrong-file",
            f"layers: they name {len(named)} ONNX nodes, of which the model has {len(found)}; expected those of an "
            "engine of this very file: compile it with `truehalf engine`",
        )
    return {node: layers for node, layers in found.items() if _computes_tensors(node)}


def _computes_tensors(node: ir.Node) -> bool:
    """Neither term by term, nor by graphs of its own, nor sequences."""
    if subgraphs(node) or (node.op_type in RULES and adds_up(node)):
        return False
    return all(isinstance(output.type, ir.TensorType) for output in node.outputs if output.name)


def _stored(row: Mapping[str, object]) -> ir.DataType | None:
    """The float type of a layer's outputs; None where there are two or none."""
    outputs = row.get("outputs")
    types = [str(name) for name in outputs if name is not None] if isinstance(outputs, Sequence) else []
    return _STORED.get(frozenset(name for name in types if not name.startswith(("Int", "Bool", "UInt"))))


class _Rounding:
    """The edit of a graph whose nodes are in layers."""

    def __init__(
        self, model: ir.Model, places: Mapping[ir.Node, list[int]], stored: Sequence[ir.DataType | None]
    ) -> None:
        self.model, self.places, self.stored, self.names = model, places, stored, Names(model)
        self.kept: set[ir.Value] = set()
        self.narrowed: set[ir.Value] = set()
        self._casts: dict[tuple[ir.Value, ir.DataType], ir.Value] = {}

    def widen(self) -> None:
        made = [output for node in self.places for output in node.outputs if _is_float(output)]
        typed = {value: value.dtype for value in made}
        for node in self.places:
            self._compute_in_float(node)
        for value in made:
            self._hand_on(value, typed[value])
        for node in self.places:  # what comes of nodes without layer, inputs and constants
            for index, read in enumerate(node.inputs):
                if read is not None and read.dtype == _HALF:
                    node.replace_input_with(index, self._cast(read, _FLOAT))

    def _compute_in_float(self, node: ir.Node) -> None:
        widen_attributes(node)
        for output in node.outputs:
            if output.dtype == _HALF:
                output.type = ir.TensorType(_FLOAT)

    def _hand_on(self, value: ir.Value, typed: ir.DataType | None) -> None:
        """Give each reader of a value, FP32 by now, what it reads of the layer."""
        node = value.producer()
        assert node is not None
        last = self.places[node][-1]
        stores = self.stored[last] or typed
        outside = [(reader, index) for reader, index in value.uses() if last not in self.places.get(reader, ())]
        in_layers = [use for use in outside if use[0] in self.places]
        if typed == _HALF and (stores == _FLOAT or len(outside) < len(value.uses())):
            self.kept.add(value)
        if typed == _FLOAT and stores == _HALF and in_layers:
            self.narrowed.add(value)
        is_output = value.is_graph_output()
        if typed == _HALF and (is_output or len(in_layers) < len(outside)):
            self._as_the_file_states(value, [use for use in outside if use not in in_layers])
        if stores == _HALF and in_layers:
            rounded = self._cast(self._cast(value, _HALF), _FLOAT)
            for reader, index in in_layers:
                reader.replace_input_with(index, rounded)

    def _as_the_file_states(self, value: ir.Value, readers: Sequence[tuple[ir.Node, int]]) -> None:
        """FP16 for nodes without layer; a graph output keeps its name."""
        half = self._cast(value, _HALF)
        for reader, index in readers:
            reader.replace_input_with(index, half)
        node = value.producer()
        graph = node.graph if node is not None else None
        if graph is not None and value.is_graph_output():
            for i, output in enumerate(graph.outputs):
                if output is value:
                    graph.outputs[i] = half
            name = value.name
            value.name = self.names.fresh(f"{name}/in_layer")
            half.name = name

    def _cast(self, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        if (value, dtype) not in self._casts:
            suffix = dtype.name.lower()
            named = self.names.fresh(f"{value.name}/to_{suffix}"), self.names.fresh(f"{value.name}/{suffix}")
            cast = cast_node(value, dtype, *named)
            insert_after(value, cast)
            self._casts[value, dtype] = cast.outputs[0]
        return self._casts[value, dtype]


def _is_float(value: ir.Value) -> bool:
    return value.dtype in (_HALF, _FLOAT)
