"""What rules take for granted of a node: that it has the inputs and outputs which its operator has to have."""

from __future__ import annotations

import functools
from collections.abc import Collection

import onnx
import onnx_ir as ir

from stages.graph.facts import all_nodes
from stages.graph.lint.base import node_name
from stages.io import StageError

_OPTIONAL = onnx.defs.OpSchema.FormalParameterOption.Optional


def check_nodes(model: ir.Model, plugin_ops: Collection[str] = ()) -> None:
    """Operators of ONNX's own domain, but for those that a plugin stands for, have what their definition asks for.

    Raises:
        StageError: naming the first node that lacks something.
    """
    opset = model.graph.opset_imports.get("", 0)
    for node in all_nodes(model):
        if node.domain != "" or node.op_type in plugin_ops or f"::{node.op_type}" in plugin_ops:
            continue
        inputs, outputs = _needed(node.op_type, opset)
        for kind, needed, given in (("input", inputs, list(node.inputs)), ("output", outputs, list(node.outputs))):
            for index, (name, may_be_empty) in enumerate(needed):
                if index >= len(given) or (given[index] is None and not may_be_empty):
                    count = sum(value is not None for value in given)
                    raise StageError(
                        f"node {node_name(node)!r}: {node.op_type} has no {kind} {name!r}; expected at least "
                        f"{len(needed)}, got {count}. The file is no valid model: export it anew"
                    )


@functools.lru_cache(maxsize=512)
def _needed(op_type: str, opset: int) -> tuple[list[tuple[str, bool]], list[tuple[str, bool]]]:
    """The inputs and outputs that an operator cannot do without, and whether each may be empty; none for an operator
    that onnx does not have.
    """
    try:
        schema = onnx.defs.get_schema(op_type, opset, "")
    except onnx.defs.SchemaError:
        return [], []
    inputs = [(one.name, one.option == _OPTIONAL) for one in schema.inputs[: schema.min_input]]
    return inputs, [(one.name, True) for one in schema.outputs[: schema.min_output]]
