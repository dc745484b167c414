"""Schema facts of a node: whether required inputs are there, and which inputs and outputs become float16.

Which float32 tensors become float16 when their node does: by the operator's ONNX schema at the model's opset, a slot
(an input or output position) follows the node when its type constraint allows tensor(float16), and stays float32
where it does not (Resize's scales, LayerNormalization's mean). Slots of one type variable allow the same types, so they
move together.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import onnx
import onnx_ir as ir

from truehalf.errors import StageError
from truehalf.ir.facts import all_nodes, is_op, name_of, opset_of
from truehalf.ir.ops import Trait, adds_up, has, row_of

HALF = "tensor(float16)"
_SINGLE = onnx.defs.OpSchema.FormalParameterOption.Single

# Operators with one of these attributes make values of a stated type (RandomNormal, EyeLike, HannWindow, ...): runtimes
# lack float16 kernels for them, and there is no conversion that changes only the attribute.
_TYPE_ATTRIBUTES = {"dtype", "output_datatype"}

_IMAGE_RANK = 4  # batch, channels, height, width

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

    def values(self, node: ir.Node) -> list[ir.Value]:
        """What is there at these positions of a node, inputs first."""
        read = [node.inputs[index] for index in sorted(self.inputs)]
        written = [node.outputs[index] for index in sorted(self.outputs)]
        return [value for value in (*read, *written) if value is not None and value.name]


def schema_of(node: ir.Node) -> onnx.defs.OpSchema | None:
    """The schema in force for a node of a normalized model; None for an operator that onnx does not know."""
    version = opset_of(node)
    return schema_at(node.op_type, version, node.domain) if version else None


@functools.cache
def schema_at(op_type: str, version: int, domain: str) -> onnx.defs.OpSchema | None:
    """The schema of an operator in a version of its domain; None for one that onnx does not know."""
    try:
        return onnx.defs.get_schema(op_type, version, domain)
    except onnx.defs.SchemaError:
        return None


def is_float32(value: ir.Value | None) -> bool:
    """Whether a value is a float32 tensor (not a sequence of them, not of unknown type)."""
    return value is not None and value.dtype == ir.DataType.FLOAT and isinstance(value.type, ir.TensorType)


def half_slots(node: ir.Node) -> Slots:
    """The slots of a typed node that become float16 with it; empty when no float16 kernel can exist."""
    schema, floats = schema_of(node), float_slots(node)
    if schema is None or _stays_float32(node, schema):
        return Slots(frozenset(), frozenset())
    return Slots(
        frozenset(index for index in floats.inputs if _allows(node, schema.inputs, index)),
        frozenset(index for index in floats.outputs if _allows(node, schema.outputs, index)),
    )


def float_slots(node: ir.Node) -> Slots:
    """All that are float32."""
    ends = (node.inputs, node.outputs)
    return Slots(*(frozenset(index for index, value in enumerate(end) if is_float32(value)) for end in ends))


def movable_slots(node: ir.Node) -> Slots:
    """The half slots; of a custom operator, which moves only when the user named it, all float32 slots together."""
    return float_slots(node) if schema_of(node) is None else half_slots(node)


def takes_any_type(node: ir.Node) -> bool:
    """Whether a node reads its input in either precision as it stands: Shape, Size, and a Cast, which converts it."""
    return has(node, Trait.SHAPE_ONLY) or (node.domain == "" and node.op_type == "Cast")


def _stays_float32(node: ir.Node, schema: onnx.defs.OpSchema) -> bool:
    """Operators whose schema has float16 but whose meaning or kernels have not."""
    makes_stated_type = not _TYPE_ATTRIBUTES.isdisjoint(schema.attributes)
    scatters_sums = row_of(node).moved != () and adds_up(node)  # ONNX Runtime's CPU kernels refuse that in float16
    nowhere = has(node, Trait.FLOAT32_ONLY) or _is_form_of_float32(node)
    return nowhere or makes_stated_type or scatters_sums or _holds_float32(node)


def _is_form_of_float32(node: ir.Node) -> bool:
    """Whether TensorRT, which alone has the operator in float16, has not this form of it (onnx-tensorrt,
    docs/operators.md): samples of volumes, deformable convolutions of volumes, dilated pools.
    """
    shape = node.inputs[0].shape if node.inputs and node.inputs[0] is not None else None
    if is_op(node, "GridSample", "DeformConv"):
        return shape is not None and len(shape) > _IMAGE_RANK
    return is_op(node, "LpPool") and any(side > 1 for side in node.attributes.get_ints("dilations", ()))


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


def check_required_inputs(model: ir.Model, plugin_ops: Collection[str] = ()) -> None:
    """Check that every node of ONNX's operators has the inputs, outputs and attributes that its schema requires.

    Args:
        plugin_ops: operators, as Op or ::Op, that a plugin stands for: they follow the rules of the plugin.

    Raises:
        StageError: naming the first node that has not.
    """
    version = model.graph.opset_imports.get("", 0)
    for node in all_nodes(model):
        if node.domain != "" or node.op_type in plugin_ops or f"::{node.op_type}" in plugin_ops:
            continue
        schema = schema_at(node.op_type, version, "")
        if schema is not None and (wrong := _wrong_ends(node, schema)):
            raise StageError(
                "model-invalid",
                f"node {name_of(node)!r}: {node.op_type} {wrong} at opset {version}; "
                "the file is no valid model: export it anew",
            )


def _wrong_ends(node: ir.Node, schema: onnx.defs.OpSchema) -> str:
    """Describe inputs, outputs or attributes of which a node has too few or too many; "" where it has all."""
    single = [index for index, formal in enumerate(schema.inputs) if formal.option == _SINGLE]
    given, made = len(node.inputs), len(node.outputs)
    there = sum(value is not None for value in node.inputs)
    if not schema.min_input <= given <= schema.max_input or any(node.inputs[i] is None for i in single if i < given):
        return f"has {there} inputs: expected {schema.min_input} to {schema.max_input}"
    if not schema.min_output <= made <= schema.max_output:
        return f"has {made} outputs: expected {schema.min_output} to {schema.max_output}"
    missing = sorted(name for name, each in schema.attributes.items() if each.required and name not in node.attributes)
    return f"has no attribute {missing[0]!r}" if missing else ""
