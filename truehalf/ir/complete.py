"""Nodes that lack what their operator has to have: named before a rule or a pass looks for it."""

from __future__ import annotations

from collections.abc import Collection

import onnx
import onnx_ir as ir

from truehalf.errors import StageError
from truehalf.ir.facts import all_nodes

_SINGLE = onnx.defs.OpSchema.FormalParameterOption.Single


def check_complete(model: ir.Model, plugin_ops: Collection[str] = ()) -> None:
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
            name = node.name or "_".join([node.op_type, *[value.name for value in node.outputs[:1] if value.name]])
            raise StageError(
                "model-invalid",
                f"node {name!r}: {node.op_type} {lacks} at opset {version}; the file is no valid model: export it anew",
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
