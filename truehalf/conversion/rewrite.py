"""An assignment made into a graph: owners in FP16 read and write float16, and a Cast stands at each border.

    x: t, read by some who want t' != t      ->  one Cast(x, t') beside x's producer, shared by all of them
    w: constant, read as t only              ->  w stored as t
    w: constant, read as both                ->  w and w_fp16 stored
    graph output y that must be t, is t'     ->  y := Cast(y_<t'>, t)

Branches of If are converted like the main graph; what subgraphs capture is cast where it is made, outside.
truehalf.conversion.ports says which node decides the precision of each end of a tensor. Shapes, order and names of
graph inputs and outputs do not change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from truehalf.conversion.masks import LEVEL
from truehalf.conversion.ports import FP16, FP32, End, Owner, Ports, Tensor, type_at
from truehalf.conversion.rounding import half
from truehalf.ir.facts import cast_node, insert_after, is_op
from truehalf.ir.normalize import Names
from truehalf.ir.passes import Done, Pass

_CAST_OPSET = 13  # for Casts in a model whose operators are all of other domains
_SUFFIX = {FP32: "fp32", FP16: "fp16"}


@dataclass(frozen=True)
class Rewrite(Pass):
    """Converts a model that was prepared (truehalf.ir.normalize.PREPARE), and counts casts_to_fp16 and casts_to_fp32.

    Attributes:
        ports: its owners and tensors.
        assignment: FLOAT or FLOAT16 by owner; owners that are not in it stay FP32.
        masks: constants whose finite elements below truehalf.conversion.masks.LEVEL become that.
    """

    ports: Ports
    assignment: Mapping[Owner, ir.DataType]
    masks: Sequence[ir.Value] = ()

    def edit(self, model: ir.Model, done: Done) -> None:
        _Conversion(model, self, done.counts).run()


class _Conversion:
    def __init__(self, model: ir.Model, given: Rewrite, counts: Counter[str]) -> None:
        self.model, self.given, self.counts = model, given, counts
        self.names = Names(model)

    def run(self) -> None:
        for node, slots in self.given.ports.slots.items():
            if slots.outputs and self.given.assignment.get(node) == FP16:
                _restate(node)
        for value in self.given.masks:
            _clamp(value)
        for tensor in self.given.ports.tensors:
            if tensor.constant:
                self._store(tensor)
            elif self._type_at(tensor.producer) == FP16:
                _make_half(tensor.value)  # with its default, where it is an input that the caller may override
        for tensor in self.given.ports.tensors:
            if not tensor.constant:
                self._bridge(tensor)

    def _type_at(self, end: End) -> ir.DataType | None:
        return type_at(end, self.given.assignment)

    def _store(self, tensor: Tensor) -> None:
        """Keep a constant in the types it is read in; the type of the graph output, where it is one, keeps the name."""
        value = tensor.value
        wanted = {want for use in tensor.uses if (want := self._type_at(use.end)) is not None}
        output = next((self._type_at(use.end) for use in tensor.uses if use.reader is self.model.graph), None)
        named = output or (FP16 if wanted == {FP16} else FP32)
        exact, other = value.const_value, FP32 if named == FP16 else FP16
        assert exact is not None
        if named == FP16:
            _make_half(value)
        if other in wanted:
            name = self.names.fresh(f"{value.name}_{_SUFFIX[other]}")
            stored = half(exact, name) if other == FP16 else _named(exact, name)
            twin = ir.Value(name=name, type=ir.TensorType(other), shape=value.shape, const_value=stored)
            tensor.graph.register_initializer(twin)
            for use in tensor.uses:
                if self._type_at(use.end) == other:
                    use.read(twin)

    def _bridge(self, tensor: Tensor) -> None:
        """Cast a tensor once if a consumer needs its other type."""
        value = tensor.value
        other = FP16 if value.dtype == FP32 else FP32
        uses = [use for use in tensor.uses if self._type_at(use.end) == other]
        if not uses:
            return
        cast = self._cast(value, other)
        for use in uses:
            use.read(cast)
        if any(use.reader is self.model.graph for use in uses):
            value.name, cast.name = self.names.fresh(f"{value.name}_{_SUFFIX[value.dtype or FP32]}"), value.name

    def _cast(self, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        """A new Cast right after the producer, or before the first node for a graph input or a constant."""
        name = self.names.fresh(f"{value.name}_to_{_SUFFIX[dtype]}")
        cast = cast_node(value, dtype, name, self.names.fresh(f"{value.name}_{_SUFFIX[dtype]}"))
        self.model.graph.opset_imports.setdefault("", _CAST_OPSET)
        insert_after(value, cast)
        self.counts[f"casts_to_{_SUFFIX[dtype]}"] += 1
        return cast.outputs[0]


def _restate(node: ir.Node) -> None:
    """Make a node that states the type it writes state float16."""
    if is_op(node, "Cast"):
        node.attributes["to"] = ir.AttrInt64("to", FP16.value)
    elif is_op(node, "ConstantOfShape"):
        given = node.attributes.get("value")
        fill = given.as_tensor() if given else ir.tensor([0.0], dtype=FP32)
        node.attributes["value"] = ir.AttrTensor("value", half(fill, None))


def _clamp(value: ir.Value) -> None:
    """Raise a mask constant, in FP32 too: its sum may be cast to float16 only after an FP32 node."""
    assert value.const_value is not None
    exact = value.const_value.numpy()
    raised = np.where(np.isneginf(exact), exact, np.maximum(exact, np.float32(LEVEL)))
    value.const_value = ir.tensor(raised, name=value.name)


def _make_half(value: ir.Value) -> None:
    """Give a tensor a type of its own: clones, as of a function that was inlined twice, share one."""
    value.type = ir.TensorType(FP16, denotation=value.type.denotation if value.type is not None else None)
    if value.const_value is not None:
        value.const_value = half(value.const_value, value.name)


def _named(tensor: ir.TensorProtocol, name: str) -> ir.TensorProtocol:
    """The same tensor under another name, read only when it is needed."""
    shape = ir.Shape(tensor.shape.numpy())
    return ir.LazyTensor(lambda: ir.tensor(tensor.numpy(), name=name), dtype=tensor.dtype, shape=shape, name=name)
