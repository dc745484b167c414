"""Outline of an ONNX file: its inputs and outputs, its nodes with module, type, arithmetic and what they read."""

from __future__ import annotations

import onnx_ir as ir

from truehalf.files import file_sha256
from truehalf.ir.arithmetic import flops
from truehalf.ir.facts import name_of, with_subgraphs
from truehalf.ir.model_forms import ModelFile
from truehalf.ir.patterns import is_computed
from truehalf.ir.selectors import scope_of
from truehalf.report.graph import FP16, FP32, Node, Outline, Tensor

_SHORT = {"FLOAT16": "FP16", "FLOAT": "FP32", "DOUBLE": "FP64", "BFLOAT16": "BF16"}
_FLOATS = {"FP16", "FP32", "FP64", "BF16"}


def outline(file: ModelFile) -> Outline:
    """What the page shows of a file; of unknown sides one element counts."""
    model = file.model
    return {
        "file": file.path.name,
        "mb": file.size_mb,
        "sha256": file_sha256(file.path),
        "external": file.external,
        "opset": model.graph.opset_imports.get("", 0),
        "ir_version": model.ir_version,
        "inputs": [_tensor(value) for value in model.graph.inputs if not value.is_initializer()],
        "outputs": [_tensor(value) for value in model.graph.outputs],
        "nodes": nodes_of(model),
    }


def nodes_of(model: ir.Model) -> list[Node]:
    """Nodes of a typed model's graph."""
    positions = {node: i for i, node in enumerate(model.graph)}
    return [_node(node, positions) for node in model.graph]


def _tensor(value: ir.Value) -> Tensor:
    shape = [side if isinstance(side, int) else str(side.value or "?") for side in value.shape or ()]
    return {"name": str(value.name), "dtype": type_of(value), "shape": shape}


def type_of(value: ir.Value) -> str:
    """Element type as people call it: "FP16", "INT64"; "" where it is not known."""
    return "" if value.dtype is None else _SHORT.get(value.dtype.name, value.dtype.name)


def _node(node: ir.Node, positions: dict[ir.Node, int]) -> Node:
    written = [type_of(value) for value in node.outputs if value.name]
    floats = [kind for kind in written if kind in _FLOATS]
    return {
        "node": name_of(node),
        "op": node.op_type,
        "scope": scope_of(node),
        "precision": "" if not floats else FP16 if set(floats) <= {"FP16", "BF16"} else FP32,
        "flops": sum(flops(each) for each in with_subgraphs(node)),
        "reads": [(_position(each, positions), type_of(each)) for each in node.inputs if each and is_computed(each)],
    }


def _position(value: ir.Value, positions: dict[ir.Node, int]) -> int:
    producer = value.producer()
    return -1 if producer is None else positions.get(producer, -1)
