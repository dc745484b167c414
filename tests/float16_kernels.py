"""Which operators ONNX Runtime's CPU provider runs in float16, and which only with Casts to float32 that it adds.

ONNX Runtime lists its kernels in no public function, but a session can write the model that it runs: Casts are in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx
import onnx.parser
import onnxruntime

from tests.onnx_backend import cases

IMAGE = "float[1,2,8,8]"
WRITTEN = (  # of which ONNX has no test in float32; the first version of CumProd, the last of MaxRoiPool that runs
    (26, f"({IMAGE} x, int64 axis) => ({IMAGE} y) {{ y = CumProd(x, axis) }}"),
    (21, f"({IMAGE} x, float[3,5] r) => (float[3,2,2,2] y) {{ y = MaxRoiPool<pooled_shape = [2, 2]>(x, r) }}"),
)


def runs_in_float16(folder: Path) -> dict[str, bool]:
    """Of each operator that can be tried alone, whether any form of it runs without Casts.

    Args:
        folder: where sessions write their models.
    """
    found: dict[str, bool] = {}
    for model in _models_of_float16():
        try:
            operators = _operators_as_run(model, folder / "run.onnx")
        except (
            Exception
        ):  # ONNX Runtime's of C++: the node has attributes or bodies of float32, or no kernel of its version
            continue
        operator = model.graph.node[0].op_type
        found[operator] = found.get(operator, False) or "Cast" not in operators
    return found


def _models_of_float16() -> Iterator[onnx.ModelProto]:
    """ONNX's backend tests of one node, with float16 in place of float32 where the node's schema has it."""
    head = '<ir_version: 10, opset_import: ["": {}]> g '
    written = [onnx.parser.parse_model(head.format(opset) + text) for opset, text in WRITTEN]
    for model in [*(model for _, model, _ in cases()), *written]:
        if len(model.graph.node) != 1:
            continue
        names = set(_names_of_float16(model))
        values = [each.type.tensor_type for each in [*model.graph.input, *model.graph.output] if each.name in names]
        floats = [each for each in values if each.elem_type == onnx.TensorProto.FLOAT]
        for each in floats:
            each.elem_type = onnx.TensorProto.FLOAT16
        if floats:
            yield model


def _names_of_float16(model: onnx.ModelProto) -> Iterator[str]:
    (node,) = model.graph.node
    (opset,) = (each.version for each in model.opset_import if each.domain == node.domain)
    schema = onnx.defs.get_schema(node.op_type, opset, node.domain)
    for names, slots in ((node.input, schema.inputs), (node.output, schema.outputs)):
        for i, name in enumerate(names):
            if "tensor(float16)" in slots[min(i, len(slots) - 1)].types:
                yield name


def _operators_as_run(model: onnx.ModelProto, written: Path) -> list[str]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.optimized_model_filepath, options.log_severity_level = str(written), 4
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [node.op_type for node in onnx.load(written).graph.node]
