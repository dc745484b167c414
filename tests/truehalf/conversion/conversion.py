"""What the tests of the conversion share: convert a graph in ONNX text, check what holds for any, run it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from tests.measuring.converted import only
from truehalf.config.precision import Precision
from truehalf.conversion.convert import ConversionResult, convert_to_fp16
from truehalf.ir.normalize import PREPARE
from truehalf.ir.selectors import Lists

HEAD = '<ir_version: 8, opset_import: ["": 17]> g '


FLOAT, FLOAT16 = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16


def parsed(text: str) -> onnx.ModelProto:
    model = onnx.parser.parse_model(text if text.startswith("<") else HEAD + text)
    onnx.checker.check_model(model, full_check=True)
    return model


def converted(
    source: str | onnx.ModelProto, pins: str = "^pin", keep_io_types: bool = True, **options: Any
) -> tuple[onnx.ModelProto, ConversionResult]:
    """Convert with all nodes free but those whose name a pattern finds; checks what must hold for any graph."""
    proto = source if isinstance(source, onnx.ModelProto) else parsed(source)
    pinned = only(block=Lists(node=(pins,)), keep_io_types=keep_io_types)
    result, mixed = convert_in_memory(proto, pinned, **options)
    check_invariants(proto, mixed, keep_io_types)
    return mixed, result


def convert_in_memory(
    proto: onnx.ModelProto, rules: Precision, **options: Any
) -> tuple[ConversionResult, onnx.ModelProto]:
    model = ir.from_proto(proto)
    PREPARE(model)
    shapes = options.pop("input_shapes", None)
    return convert_to_fp16(model, None, replace(rules, **{"placement": "eager"} | options), shapes), ir.to_proto(model)


def check_invariants(before: onnx.ModelProto, after: onnx.ModelProto, keep_io_types: bool) -> None:
    onnx.checker.check_model(after, full_check=True)  # sortedness and unique value names included
    import onnxruntime as ort

    ort.InferenceSession(after.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [node.name for node in after.graph.node]
    assert len(set(names)) == len(names)
    assert all(names)
    for old, new in [(before.graph.input, after.graph.input), (before.graph.output, after.graph.output)]:
        assert [value.name for value in new] == [value.name for value in old]
        for a, b in zip(old, new, strict=True):
            same = keep_io_types or a.type.tensor_type.elem_type != FLOAT
            assert b.type.tensor_type.elem_type == (a.type.tensor_type.elem_type if same else FLOAT16)
    there = {node.output[0] for node in before.graph.node}
    new = [node for node in after.graph.node if node.op_type == "Cast" and node.output[0] not in there]
    casts = [
        (node.input[0], node.attribute[0].i) for node in new if node.name not in {n.name for n in before.graph.node}
    ]
    assert len(set(casts)) == len(casts)  # one per tensor and direction


def run(model: onnx.ModelProto, *arrays: Any) -> list[np.ndarray]:
    import onnxruntime as ort

    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    types = {
        "tensor(float)": np.float32,
        "tensor(float16)": np.float16,
        "tensor(int64)": np.int64,
        "tensor(bool)": bool,
    }
    feeds = {i.name: np.asarray(a, types[i.type]) for i, a in zip(session.get_inputs(), arrays, strict=True)}
    return session.run(None, feeds)


def same(text: str, *arrays: Any, rtol: float = 2e-3, **options: Any) -> onnx.ModelProto:
    """Convert, and compare with the original. The CPU provider computes float16 nodes in float32: the tolerance is that
    of a few roundings to float16 (half an ULP each, 2^-11) at tensors the provider does materialise.
    """
    proto = parsed(text)
    result, _ = converted(proto, **options)
    for expected, got in zip(run(proto, *arrays), run(result, *arrays), strict=True):
        np.testing.assert_allclose(got.astype(np.float64), expected.astype(np.float64), rtol=rtol, atol=1e-3)
    return result


def types(model: onnx.ModelProto) -> dict[str, int]:
    """Element types of all values, inferred anew from inputs and initializers alone."""
    bare = onnx.ModelProto.FromString(model.SerializeToString())
    del bare.graph.value_info[:]
    inferred = onnx.shape_inference.infer_shapes(bare, check_type=True, strict_mode=True).graph
    values = [*inferred.value_info, *inferred.input, *inferred.output]
    found = {value.name: value.type.tensor_type.elem_type for value in values}
    return found | {w.name: w.data_type for w in inferred.initializer}


def ops(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def all_ops(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in ir.traversal.RecursiveGraphIterator(ir.from_proto(model).graph)]


X = np.array([[0.5, -1.25], [2.0, 3.3]])
