"""What FP32 costs more, by node, at the shapes that are given."""

import onnx.parser
import onnx_ir as ir

from truehalf.conversion.partition import BYTES_PER_FLOP
from truehalf.ir.normalize import NORMALIZE
from truehalf.verification.pinning.fp32_costs import fp32_costs

TEXT = """<ir_version: 8, opset_import: ["" : 17]> g (float[N,4] x) => (float[N,2] y)
    <float[4,2] w = {1, 2, 3, 4, 5, 6, 7, 8}> { m = MatMul(x, w)  r = Reshape(m, shape)  y = Relu(r) }"""


def test_bytes_and_arithmetic_count_and_a_view_costs_nothing() -> None:
    text = TEXT.replace("6, 7, 8}", "6, 7, 8}, int64[2] shape = {-1, 2}")
    model = ir.serde.deserialize_model(onnx.parser.parse_model(text))
    NORMALIZE(model)
    names = {node.op_type: str(node.name) for node in model.graph}
    costs = fp32_costs(model, {"x": [10, 4]})
    assert costs[names["MatMul"]] == 2 * (40 + 8 + 20) + int(BYTES_PER_FLOP * 2 * 4 * 20)
    assert costs[names["Reshape"]] == 0
    assert fp32_costs(model, {"x": [1, 4]})[names["MatMul"]] < costs[names["MatMul"]]
