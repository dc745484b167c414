"""What the tests of the FP16 door share: a small model, ranges, types of what was written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx

FLOAT, FLOAT16 = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16


TEXT = """<ir_version: 8, opset_import: ["": 17]> g (float["n", 2] images) => (float["n", 2] logits)
    <float[2,2] w = {1.0, -2.0, 0.5, 3.0}>
    { a = MatMul(images, w)  b = Relu(a)  logits = Softmax(b) }"""


NAMES = ["/decoder/layers.0/MatMul", "/decoder/Relu", "/head/Softmax"]


def saved(folder: Path, text: str = TEXT, names: list[str] | None = None) -> Path:
    proto = onnx.parser.parse_model(text)
    for node, name in zip(proto.graph.node, NAMES if names is None else names, strict=False):
        node.name = name
    onnx.save(proto, folder / "in.onnx")
    return folder / "in.onnx"


def measured(**absmax: float) -> dict[str, Any]:
    return {"tensors": {name: {"absmax": value, "sample": "s3"} for name, value in absmax.items()}}


def node_types(path: Path) -> dict[str, int]:
    """Element type of each node's first output."""
    graph = onnx.shape_inference.infer_shapes(onnx.load(path)).graph
    types = {v.name: v.type.tensor_type.elem_type for v in [*graph.value_info, *graph.output]}
    return {node.name: types[node.output[0]] for node in graph.node}
