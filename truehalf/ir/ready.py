"""The form in which graphs are measured, judged and converted: constants alike, nodes named, sorted and typed.

    function calls                     inlined
    Constant nodes of float32          initializers of the same name, in bodies too (sparse ones stay)
    weights listed among the inputs    no inputs (until IR version 3 all of them had to stand there)

None of it changes what a model computes.
"""

from __future__ import annotations

from collections.abc import Collection

import onnx
import onnx_ir as ir

from truehalf.errors import StageError
from truehalf.ir.facts import all_nodes, name_of
from truehalf.ir.normalize import normalize
from truehalf.ir.opset import list_weights_apart

_SINGLE = onnx.defs.OpSchema.FormalParameterOption.Single


def prepare(model: ir.Model) -> None:
    """Bring a model, in place, into the form that ranges are measured in and truehalf.conversion.convert expects.

    Raises:
        StageError: when the graph has a cycle.
    """
    import onnx_ir.passes.common as common_passes

    if model.functions:
        common_passes.InlinePass()(model)
    list_weights_apart(model)
    for graph in model.graphs():
        _lift_constants(graph)
    normalize(model)


def _lift_constants(graph: ir.Graph) -> None:
    """Make float32 Constant nodes initializers of the same name."""
    for node in [node for node in graph if node.op_type == "Constant" and node.domain == ""]:
        value = node.outputs[0]
        tensor = ir.convenience.get_const_tensor(value)
        if tensor is None or tensor.dtype != ir.DataType.FLOAT:  # None: sparse
            continue
        lifted = ir.Value(
            name=value.name,
            type=ir.TensorType(ir.DataType.FLOAT),
            shape=ir.Shape(tensor.shape.numpy()),
            const_value=tensor,
        )
        value.replace_all_uses_with(lifted, replace_graph_outputs=True)
        graph.remove(node, safe=True)
        graph.register_initializer(lifted)


def check_required_inputs(model: ir.Model, plugin_ops: Collection[str] = ()) -> None:
    """Check that every node of ONNX's own operators has the inputs, outputs and attributes that its schema requires.

    Args:
        plugin_ops: operators, as Op or ::Op, that a plugin stands for: they have rules of their own.

    Raises:
        StageError: naming the first node that has not.
    """
    version = model.graph.opset_imports.get("", 0)
    for node in all_nodes(model):
        if node.domain != "" or node.op_type in plugin_ops or f"::{node.op_type}" in plugin_ops:
            continue
        try:
            schema = onnx.defs.get_schema(node.op_type, version)
        except onnx.defs.SchemaError:  # an operator that ONNX does not have
            continue
        if (lacks := _lacks(node, schema)) is not None:
            raise StageError(
                "model-invalid",
                f"node {name_of(node)!r}: {node.op_type} {lacks} at opset {version}; "
                "the file is no valid model: export it anew",
            )


def _lacks(node: ir.Node, schema: onnx.defs.OpSchema) -> str | None:
    given, made = len(node.inputs), len(node.outputs)
    inputs, outputs = _between(schema.min_input, schema.max_input), _between(schema.min_output, schema.max_output)
    for index, formal in enumerate(schema.inputs):
        missing = index >= given and index < schema.min_input
        if missing or (index < given and node.inputs[index] is None and formal.option == _SINGLE):
            there = sum(value is not None for value in node.inputs)
            return f"has no input {formal.name!r}: expected {inputs}, got {there}"
    if given > schema.max_input:
        return f"has {given} inputs: expected {inputs}"
    if made < schema.min_output:
        return f"has no output {schema.outputs[made].name!r}: expected {outputs}, got {made}"
    if made > schema.max_output:
        return f"has {made} outputs: expected {outputs}"
    for name, attribute in sorted(schema.attributes.items()):
        if attribute.required and name not in node.attributes:
            return f"has no attribute {name!r}: expected one"
    return None


def _between(least: int, most: int) -> str:
    if least == most:
        return str(least)
    return f"{least} or more" if most > 1 << 30 else f"{least} to {most}"
