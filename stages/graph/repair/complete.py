"""Nodes that lack what their operator needs: named before a pass looks for it."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from stages.graph.facts import all_nodes
from stages.io import StageError


def check_complete(model: ir.Model) -> None:
    """Check that every node of ONNX's own operators has the inputs, outputs and attributes that its schema requires.

    Raises:
        StageError: the first node that has not.
    """
    version = model.graph.opset_imports.get("", 0)
    for node in all_nodes(model):
        if node.domain != "":
            continue
        try:
            schema = onnx.defs.get_schema(node.op_type, version)
        except onnx.defs.SchemaError:  # an operator that ONNX does not have
            continue
        if (lacks := _lacks(node, schema)) is not None:
            raise StageError(
                f"node {node.name or node.op_type!r} ({node.op_type}) {lacks} at opset {version}; "
                "the tool that wrote this file broke it, convert the original again"
            )


def _lacks(node: ir.Node, schema: onnx.defs.OpSchema) -> str | None:
    given, made = len(node.inputs), len(node.outputs)
    if not schema.min_input <= given <= schema.max_input:
        return f"has {given} inputs: expected {_between(schema.min_input, schema.max_input)}"
    single = onnx.defs.OpSchema.FormalParameterOption.Single
    for formal, value in zip(schema.inputs, node.inputs, strict=False):
        if value is None and formal.option == single:
            return f"has no input {formal.name!r}: expected one"
    if not schema.min_output <= made <= schema.max_output:
        return f"has {made} outputs: expected {_between(schema.min_output, schema.max_output)}"
    for name, attribute in sorted(schema.attributes.items()):
        if attribute.required and name not in node.attributes:
            return f"has no attribute {name!r}: expected one"
    return None


def _between(least: int, most: int) -> str:
    if least == most:
        return str(least)
    return f"{least} or more" if most > 1 << 30 else f"{least} to {most}"
