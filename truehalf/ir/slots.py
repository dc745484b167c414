"""Which float32 tensors of a node become float16 when the node does.

Rule: read the operator's ONNX schema at the model's opset; a slot (an input or output position) follows the node when
its own type constraint allows tensor(float16), and stays float32 where it does not (Resize's scales,
LayerNormalization's mean). Slots of one type variable allow the same types, so they move together.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import onnx
import onnx_ir as ir

from truehalf.ir.ops import Trait, adds_up, has, row_of

HALF = "tensor(float16)"

# Operators with one of these attributes make values of a stated type (RandomNormal, EyeLike, HannWindow, ...): runtimes
# lack float16 kernels for them, and there is no conversion to be made of the attribute alone.
_TYPE_ATTRIBUTES = {"dtype", "output_datatype"}

# It means the bits of its input, not the value.
_BITS = "BitCast"

# They state their type with the tensor in their attribute, which is converted with them. Of all other operators such a
# tensor (a tree's leaf weights) stays float32, and so does what must be of its type.
_TENSOR_IS_TYPE = {"Constant", "ConstantOfShape"}


@dataclass(frozen=True)
class Slots:
    """Positions of the float32 inputs and outputs that turn float16 with their node."""

    inputs: frozenset[int]
    outputs: frozenset[int]

    def __bool__(self) -> bool:
        return bool(self.inputs or self.outputs)


def schema_of(node: ir.Node) -> onnx.defs.OpSchema | None:
    """The schema in force for a node of a normalized model; None for an operator that onnx does not know."""
    version = node.version or (node.graph.opset_imports.get(node.domain) if node.graph is not None else None)
    return None if version is None else _schema(node.op_type, version, node.domain)


@functools.cache
def _schema(op_type: str, version: int, domain: str) -> onnx.defs.OpSchema | None:
    try:
        return onnx.defs.get_schema(op_type, version, domain)
    except onnx.defs.SchemaError:
        return None


def is_float32(value: ir.Value | None) -> bool:
    """Whether a value is a float32 tensor (not a sequence of them, not of unknown type)."""
    return value is not None and value.dtype == ir.DataType.FLOAT and isinstance(value.type, ir.TensorType)


def half_slots(node: ir.Node) -> Slots:
    """The slots of a typed node that become float16 with it; empty when no float16 kernel can exist."""
    schema = schema_of(node)
    if schema is None or _stays_float32(node, schema):
        return Slots(frozenset(), frozenset())
    return Slots(
        frozenset(i for i, value in enumerate(node.inputs) if is_float32(value) and _allows(node, schema.inputs, i)),
        frozenset(i for i, value in enumerate(node.outputs) if is_float32(value) and _allows(node, schema.outputs, i)),
    )


def takes_any_type(node: ir.Node) -> bool:
    """Whether a node reads its input in either precision as it stands: Shape, Size, and a Cast, which converts it."""
    return has(node, Trait.SHAPE_ONLY) or (node.domain == "" and node.op_type == "Cast")


def _stays_float32(node: ir.Node, schema: onnx.defs.OpSchema) -> bool:
    """Operators whose schema has float16 but whose meaning or kernels have not."""
    makes_stated_type = not _TYPE_ATTRIBUTES.isdisjoint(schema.attributes)
    scatters_sums = row_of(node).moved != () and adds_up(node)  # ONNX Runtime's CPU kernels refuse that in float16
    return node.op_type == _BITS or makes_stated_type or scatters_sums or _holds_float32(node)


def _holds_float32(node: ir.Node) -> bool:
    attributes = node.attributes.values() if node.op_type not in _TENSOR_IS_TYPE else ()
    return any(
        attribute.type == ir.AttributeType.TENSOR and attribute.as_tensor().dtype == ir.DataType.FLOAT
        for attribute in attributes
    )


def _allows(node: ir.Node, parameters: Sequence[onnx.defs.OpSchema.FormalParameter], position: int) -> bool:
    if not parameters:
        return False
    parameter = parameters[min(position, len(parameters) - 1)]  # the last one repeats when it is variadic
    return HALF in parameter.types and parameter.is_homogeneous and parameter.name not in row_of(node).coordinates
