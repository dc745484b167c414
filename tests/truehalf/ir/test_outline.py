"""Outline of a file: what goes in and out, which node has which type, what it reads, what it costs."""

import hashlib
from pathlib import Path

import onnx.parser
import onnx_ir as ir

from truehalf.ir.model_forms import ModelFile
from truehalf.ir.outline import outline
from truehalf.report.graph import islands

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (float["n",4] x) => (float["n",3] y)
<float16[4,3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}>
{ [in] h = Cast<to = 10>(x)
  ["/net/head/MatMul"] m = MatMul(h, w)
  [up] u = Cast<to = 1>(m)
  ["/net/head/Softmax"] y = Softmax<axis = -1>(u) }"""


def of(tmp_path: Path):
    model = onnx.shape_inference.infer_shapes(onnx.parser.parse_model(TEXT))
    ir.save(ir.serde.deserialize_model(model), tmp_path / "m.onnx")
    return outline(ModelFile(tmp_path / "m.onnx"))


def test_what_goes_in_and_out_and_the_digest_of_the_file(tmp_path: Path) -> None:
    found = of(tmp_path)
    assert found["inputs"] == [{"name": "x", "dtype": "FP32", "shape": ["n", 4]}]
    assert found["outputs"] == [{"name": "y", "dtype": "FP32", "shape": ["n", 3]}]
    assert (found["opset"], found["ir_version"], found["external"]) == (17, 8, [])
    assert found["sha256"] == hashlib.sha256((tmp_path / "m.onnx").read_bytes()).hexdigest()
    assert found["mb"] * 1e6 == (tmp_path / "m.onnx").stat().st_size


def test_nodes_have_their_module_type_arithmetic_and_what_they_read(tmp_path: Path) -> None:
    nodes = of(tmp_path)["nodes"]
    assert [node["op"] for node in nodes] == ["Cast", "MatMul", "Cast", "Softmax"]
    assert [node["precision"] for node in nodes] == ["fp16", "fp16", "fp32", "fp32"]
    assert [node["reads"] for node in nodes] == [[(-1, "FP32")], [(0, "FP16")], [(1, "FP16")], [(2, "FP32")]]
    assert [node["scope"] for node in nodes] == ["", "net.head", "", "net.head"]
    assert [node["flops"] for node in nodes][:3] == [0, 2 * 4 * 3, 0] and nodes[3]["flops"] > 0
    assert islands(nodes) == [[3]]
