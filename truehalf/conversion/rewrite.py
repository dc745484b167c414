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
from dataclasses import dataclass, field, replace

import numpy as np
import onnx_ir as ir

from truehalf.conversion.masks import LEVEL
from truehalf.conversion.ports import FP16, FP32, Owner, Ports, Tensor, Use, type_at
from truehalf.conversion.report import Fp16Report
from truehalf.conversion.rounding import Losses, half
from truehalf.ir.facts import cast_node, insert_after
from truehalf.ir.normalize import Names
from truehalf.ir.passes import Done, Pass

_CAST_OPSET = 13  # for Casts in a model whose operators are all of other domains
_SUFFIX = {FP32: "fp32", FP16: "fp16"}
_COUNTED = ("casts_to_fp16", "casts_to_fp32", "tensors_fp16", "tensors_fp32", "tensors_both", "masks_clamped")


@dataclass(frozen=True)
class Rewrite(Pass):
    """Converts a model that was prepared (truehalf.ir.normalize.PREPARE).

    Counts casts_to_fp16, casts_to_fp32, masks_clamped, and float constants as they are stored: tensors_fp16,
    tensors_fp32, tensors_both.

    Attributes:
        ports: its owners and tensors.
        assignment: FLOAT or FLOAT16 by owner; owners that are not in it stay FP32.
        masks: constants whose finite elements below truehalf.conversion.masks.LEVEL become that.
        losses: what rounding elements to float16 loses; those of large weights when the model is saved, as they are
            written.
    """

    ports: Ports
    assignment: Mapping[Owner, ir.DataType]
    masks: Sequence[ir.Value] = ()
    losses: Losses = field(default_factory=Losses)

    def edit(self, model: ir.Model, done: Done) -> None:
        _Conversion(model, self, done.counts).run()


@dataclass(frozen=True)
class ConversionReport:
    """What a Rewrite has done: its counts, and its losses, which are complete once the model is saved."""

    counts: Mapping[str, int]
    losses: Losses

    def added_to(self, report: Fp16Report) -> Fp16Report:
        """A report with the counts of Casts and weights."""
        counts = {name: self.counts.get(name, 0) for name in _COUNTED}
        to_fp16, to_fp32 = counts.pop("casts_to_fp16"), counts.pop("casts_to_fp32")
        counts |= {f"elements_{name}": count for name, count in self.losses.as_dict().items()}
        return replace(report, casts_to_fp16=to_fp16, casts_to_fp32=to_fp32, weights=counts)


class _Conversion:
    def __init__(self, model: ir.Model, given: Rewrite, counts: Counter[str]) -> None:
        self.model, self.given, self.counts = model, given, counts
        self.ports, self.assignment = given.ports, given.assignment
        self.names = Names(model)

    def run(self) -> None:
        for node, slots in self.ports.slots.items():
            if slots.outputs and self.assignment.get(node) == FP16:
                self._restate(node)
        for value in self.given.masks:
            self._clamp(value)
        for tensor in self.ports.tensors:
            if tensor.constant:
                self._store(tensor)
            elif type_at(tensor.producer, self.assignment) == FP16:
                self._retype(tensor.value)
        for tensor in self.ports.tensors:
            if not tensor.constant:
                self._bridge(tensor)

    def _restate(self, node: ir.Node) -> None:
        """Make a node that states the type it writes state float16."""
        if node.op_type == "Cast" and node.domain == "":
            node.attributes["to"] = ir.AttrInt64("to", FP16.value)
        elif node.op_type == "ConstantOfShape" and node.domain == "":
            given = node.attributes.get("value")
            fill = given.as_tensor() if given else ir.tensor([0.0], dtype=FP32)
            node.attributes["value"] = ir.AttrTensor("value", self._half(fill, None))

    def _retype(self, value: ir.Value) -> None:
        _make_half(value)
        if value.const_value is not None:  # an input's default, which the caller may override
            value.const_value = self._half(value.const_value, value.name)

    # --- constants ----------------------------------------------------------------------------------------------------

    def _store(self, tensor: Tensor) -> None:
        """Keep a constant in the types it is read in; the type of the graph output, where it is one, keeps the name."""
        value = tensor.value
        wanted = {want for use in tensor.uses if (want := self._wanted(use)) is not None}
        output = next((self._wanted(use) for use in tensor.uses if use.reader is self.model.graph), None)
        named = output or (FP16 if wanted == {FP16} else FP32)
        exact, other = value.const_value, FP32 if named == FP16 else FP16
        assert exact is not None
        if named == FP16:
            value.const_value = self._half(exact, value.name)
            _make_half(value)
        if other in wanted:
            twin = self._twin(tensor, exact, other)
            for use in tensor.uses:
                if self._wanted(use) == other:
                    use.read(twin)
        stored = wanted | {named}
        self.counts["tensors_both" if len(stored) == 2 else f"tensors_{_SUFFIX[named]}"] += 1

    def _twin(self, tensor: Tensor, exact: ir.TensorProtocol, dtype: ir.DataType) -> ir.Value:
        value = tensor.value
        name = self.names.fresh(f"{value.name}_{_SUFFIX[dtype]}")
        stored = self._half(exact, name) if dtype == FP16 else _named(exact, name)
        twin = ir.Value(name=name, type=ir.TensorType(dtype), shape=value.shape, const_value=stored)
        tensor.graph.register_initializer(twin)
        return twin

    def _half(self, tensor: ir.TensorProtocol, name: str | None) -> ir.TensorProtocol:
        return half(tensor, name=name, losses=self.given.losses)

    def _clamp(self, value: ir.Value) -> None:
        """Raise a mask constant, in FP32 too: its sum may be cast to float16 only after an FP32 node."""
        assert value.const_value is not None
        exact = value.const_value.numpy()
        raised = np.where(np.isneginf(exact), exact, np.maximum(exact, np.float32(LEVEL)))
        value.const_value = ir.tensor(raised, name=value.name)
        self.counts["masks_clamped"] += 1

    # --- borders ------------------------------------------------------------------------------------------------------

    def _wanted(self, use: Use) -> ir.DataType | None:
        return type_at(use.end, self.assignment)

    def _bridge(self, tensor: Tensor) -> None:
        """Cast a tensor once if a consumer needs its other type."""
        value = tensor.value
        other = FP16 if value.dtype == FP32 else FP32
        uses = [use for use in tensor.uses if self._wanted(use) == other]
        if not uses:
            return
        cast = self._cast(tensor, other)
        for use in uses:
            use.read(cast)
        if any(use.reader is self.model.graph for use in uses):
            value.name, cast.name = self.names.fresh(f"{value.name}_{_SUFFIX[value.dtype or FP32]}"), value.name

    def _cast(self, tensor: Tensor, dtype: ir.DataType) -> ir.Value:
        """A new Cast right after the producer, or before the first node for a graph input or a constant."""
        value = tensor.value
        name = self.names.fresh(f"{value.name}_to_{_SUFFIX[dtype]}")
        cast = cast_node(value, dtype, name, self.names.fresh(f"{value.name}_{_SUFFIX[dtype]}"))
        self.model.graph.opset_imports.setdefault("", _CAST_OPSET)
        insert_after(value, cast)
        self.counts[f"casts_to_{_SUFFIX[dtype]}"] += 1
        return cast.outputs[0]


def _make_half(value: ir.Value) -> None:
    """Give a tensor a type of its own: clones, as of a function that was inlined twice, share one."""
    value.type = ir.TensorType(FP16, denotation=value.type.denotation if value.type is not None else None)


def _named(tensor: ir.TensorProtocol, name: str) -> ir.TensorProtocol:
    """The same tensor under another name, read only when it is needed."""
    shape = ir.Shape(tensor.shape.numpy())
    return ir.LazyTensor(lambda: ir.tensor(tensor.numpy(), name=name), dtype=tensor.dtype, shape=shape, name=name)
