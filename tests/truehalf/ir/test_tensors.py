"""Tensors of a model that was read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from truehalf.ir.model_file import load_model, save_model

TYPES = [TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.INT64, TensorProto.BOOL]
TYPES += [TensorProto.INT4, TensorProto.UINT2, TensorProto.FLOAT8E4M3FN, TensorProto.COMPLEX64]


def _tensor(dtype: int, name: str, raw: bool) -> onnx.TensorProto:
    made = helper.make_tensor(name, dtype, [3], [1, 0, 1])
    if raw:
        made.CopyFrom(ir.to_proto(ir.tensor(ir.from_proto(made).numpy(), ir.DataType(dtype), name=name)))
        assert made.HasField("raw_data")
    made.doc_string = "said"
    return made


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("dtype", TYPES, ids=TensorProto.DataType.Name)
def test_a_tensor_is_read_once_and_written_as_it_was(dtype: int, raw: bool, tmp_path: Path) -> None:
    node = helper.make_node("Constant", [], ["c"], value=_tensor(dtype, "inner", raw))
    outputs = [helper.make_tensor_value_info(name, dtype, [3]) for name in "cw"]
    graph = helper.make_graph([node], "g", [], outputs, [_tensor(dtype, "w", raw)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=13), tmp_path / "a.onnx")
    model = load_model(tmp_path / "a.onnx")
    for tensor in (model.graph.initializers["w"].const_value, model.graph[0].attributes["value"].as_tensor()):
        assert np.shares_memory(tensor.numpy(), tensor.numpy()) == raw
    save_model(model, tmp_path / "b.onnx", checked=False)
    before, after = (onnx.load(tmp_path / name) for name in ("a.onnx", "b.onnx"))
    assert after.graph.initializer == before.graph.initializer
    assert after.graph.node[0].attribute[0].t == before.graph.node[0].attribute[0].t
