"""An assignment made into a graph: nodes that run in FP16 read and write float16, and a Cast stands at each border.

    x: t, read by nodes that want t' != t    ->  one Cast(x, t'), shared by all of them
    w: constant, read as t only              ->  w stored as t
    w: constant, read as both                ->  w and w_fp16 stored
    graph output y that must be t, is t'     ->  y := Cast(y_<t'>, t)

What a node's slots become is the schema's word (stages.graph.slots). Subgraph bodies stay FP32; what they capture
arrives as float32. Shapes, order and names of inputs and outputs do not change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from stages.graph.normalize import Names, name_nodes, sort_nodes
from stages.graph.slots import Slots, half_slots, is_float32, takes_any_type

FP32, FP16 = ir.DataType.FLOAT, ir.DataType.FLOAT16
_CAST_OPSET = 13  # for Casts in a model whose operators are all of other domains
_SUFFIX = {FP32: "fp32", FP16: "fp16"}
_FIRST_IR_WITHOUT_WEIGHTS_AMONG_INPUTS = 4


@dataclass
class WeightCounts:
    """Float constants. Tensors: stored as float16, as float32, as both. Elements, of those rounded to float16:
    underflowed (nonzero before, zero after), overflowed (finite before, Inf after).
    """

    tensors_fp16: int = 0
    tensors_fp32: int = 0
    tensors_both: int = 0
    elements_rounded: int = 0
    elements_underflowed: int = 0
    elements_overflowed: int = 0


@dataclass
class ConversionReport:
    """What a conversion did: Casts inserted, constants stored."""

    casts_to_fp16: int = 0
    casts_to_fp32: int = 0
    weights: WeightCounts = field(default_factory=WeightCounts)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def convert(model: ir.Model, assignment: Mapping[ir.Node, ir.DataType], keep_io_types: bool = True) -> ConversionReport:
    """Convert a typed model in place.

    Args:
        model: value types known (stages.graph.normalize).
        assignment: FLOAT or FLOAT16 for nodes of the main graph; nodes that are not in it stay as they are.
        keep_io_types: float32 graph inputs and outputs stay float32; otherwise all of them become float16.

    Raises:
        StageError: when the graph has a cycle.
    """
    sort_nodes(model)
    name_nodes(model)
    conversion = _Conversion(model, assignment, FP32 if keep_io_types else FP16)
    conversion.run()
    return conversion.report


class _Conversion:
    def __init__(self, model: ir.Model, assignment: Mapping[ir.Node, ir.DataType], io_type: ir.DataType) -> None:
        self.model, self.graph, self.io_type = model, model.graph, io_type
        self.names = Names(model)
        self.report = ConversionReport()
        in_fp16 = [node for node, precision in assignment.items() if precision == FP16 and node.graph is model.graph]
        self.slots: dict[ir.Node, Slots] = {node: half_slots(node) for node in in_fp16}

    def run(self) -> None:
        _list_weights_apart(self.model)
        _lift_constants(self.model)
        constants = [value for value in self.graph.initializers.values() if not value.is_graph_input()]
        weights = [value for value in constants if is_float32(value)]
        inputs = [value for value in self.graph.inputs if is_float32(value)]
        written = [value for node in self.graph for value in node.outputs if is_float32(value)]
        for value in inputs:
            self._retype_input(value)
        for node, slots in self.slots.items():
            self._retype_outputs(node, slots)
        for value in weights:
            self._store(value)
        for value in [*inputs, *written]:
            self._bridge(value)

    def _demand(self, user: ir.Node, index: int) -> ir.DataType | None:
        """The type that a use wants of a tensor that was float32; None: either."""
        if takes_any_type(user):
            return None
        slots = self.slots.get(user)
        return FP16 if slots is not None and index in slots.inputs else FP32

    # --- types of what is written -------------------------------------------------------------------------------------

    def _retype_input(self, value: ir.Value) -> None:
        value.dtype = self.io_type
        if self.io_type == FP16 and value.const_value is not None:  # a default that the caller may override
            value.const_value = self._rounded(value.const_value, value.name)

    def _retype_outputs(self, node: ir.Node, slots: Slots) -> None:
        for index in slots.outputs:
            node.outputs[index].dtype = FP16
        if slots.outputs and node.op_type == "Cast":
            node.attributes["to"] = ir.AttrInt64("to", FP16.value)
        if slots.outputs and node.op_type == "ConstantOfShape":
            given = node.attributes.get("value")
            zero = ir.tensor(np.zeros(1, np.float32))
            node.attributes["value"] = ir.AttrTensor("value", self._rounded(given.as_tensor() if given else zero, None))

    # --- constants ----------------------------------------------------------------------------------------------------

    def _store(self, value: ir.Value) -> None:
        """Keep a constant in the types it is read in; the type of the graph output, where it is one, keeps the name."""
        uses = list(value.uses())
        wanted = {demand for use in uses if (demand := self._demand(*use))}
        is_output = value.is_graph_output()
        named = self.io_type if is_output else FP16 if wanted == {FP16} else FP32
        tensor = value.const_value
        assert tensor is not None
        if named == FP16:
            value.const_value, value.dtype = self._rounded(tensor, value.name), FP16
        other = FP32 if named == FP16 else FP16
        if other in wanted:
            twin = self._twin(value, tensor, other)
            for use in uses:
                if self._demand(*use) == other:
                    use.node.replace_input_with(use.idx, twin)
        stored = wanted | {named}
        self.report.weights.tensors_both += len(stored) == 2
        self.report.weights.tensors_fp16 += stored == {FP16}
        self.report.weights.tensors_fp32 += stored == {FP32}

    def _twin(self, value: ir.Value, tensor: ir.TensorProtocol, dtype: ir.DataType) -> ir.Value:
        name = self.names.fresh(f"{value.name}_{_SUFFIX[dtype]}")
        stored = self._rounded(tensor, name) if dtype == FP16 else ir.tensor(tensor.numpy(), name=name)
        twin = ir.Value(name=name, type=ir.TensorType(dtype), shape=value.shape, const_value=stored)
        self.graph.register_initializer(twin)
        return twin

    def _rounded(self, tensor: ir.TensorProtocol, name: str | None) -> ir.TensorProtocol:
        """float16, rounded to nearest (ties to even): signs stay, beyond 65504 comes Inf. Losses are counted."""
        exact = tensor.numpy()
        with np.errstate(over="ignore"):
            rounded = exact.astype(np.float16)
        counts = self.report.weights
        counts.elements_rounded += exact.size
        counts.elements_underflowed += int(np.count_nonzero((rounded == 0) & (exact != 0)))
        counts.elements_overflowed += int(np.count_nonzero(np.isinf(rounded) & np.isfinite(exact)))
        return ir.tensor(rounded, name=name)

    # --- borders ------------------------------------------------------------------------------------------------------

    def _bridge(self, value: ir.Value) -> None:
        """Cast a tensor once if somebody wants it in its other type."""
        other = FP16 if value.dtype == FP32 else FP32
        users = [use for use in value.uses() if self._demand(*use) == other]
        is_output = value.is_graph_output() and not value.is_graph_input() and self.io_type == other
        if not users and not is_output:
            return
        cast = self._cast(value, other)
        for use in users:
            use.node.replace_input_with(use.idx, cast)
        if is_output:
            value.name, cast.name = self.names.fresh(f"{value.name}_{_SUFFIX[value.dtype or FP32]}"), value.name
            for index, output in enumerate(self.graph.outputs):
                if output is value:
                    self.graph.outputs[index] = cast

    def _cast(self, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        """A new Cast right after the producer, or before the first node for a graph input."""
        name = self.names.fresh(f"{value.name}_to_{_SUFFIX[dtype]}")
        result = ir.Value(name=self.names.fresh(f"{value.name}_{_SUFFIX[dtype]}"))
        result.type, result.shape = ir.TensorType(dtype), value.shape
        attributes = [ir.AttrInt64("to", dtype.value)]
        self.graph.opset_imports.setdefault("", _CAST_OPSET)
        cast = ir.Node("", "Cast", [value], attributes, outputs=[result], name=name)
        producer = value.producer()
        if producer is not None:
            self.graph.insert_after(producer, cast)
        else:
            self.graph.insert_before(self.graph[0], cast)
        self.report.casts_to_fp16 += dtype == FP16
        self.report.casts_to_fp32 += dtype == FP32
        return result


def _list_weights_apart(model: ir.Model) -> None:
    """Until IR version 3 every weight was listed among the inputs as well; nobody means it as an input."""
    if model.ir_version < _FIRST_IR_WITHOUT_WEIGHTS_AMONG_INPUTS:
        inputs = [value for value in model.graph.inputs if value.const_value is None]
        model.graph.inputs.clear()
        model.graph.inputs.extend(inputs)
        model.ir_version = _FIRST_IR_WITHOUT_WEIGHTS_AMONG_INPUTS


def _lift_constants(model: ir.Model) -> None:
    """Make float32 Constant nodes of the main graph initializers of the same name, so that constants are alike."""
    graph = model.graph
    for node in list(graph):
        value = node.outputs[0] if node.op_type == "Constant" and node.domain == "" else None
        tensor = ir.convenience.get_const_tensor(value) if value is not None and is_float32(value) else None
        if value is None or tensor is None:
            continue
        lifted = ir.Value(name=value.name, type=ir.TensorType(FP32), shape=value.shape, const_value=tensor)
        value.replace_all_uses_with(lifted, replace_graph_outputs=True)
        graph.remove(node, safe=True)
        graph.register_initializer(lifted)
