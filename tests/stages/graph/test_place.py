"""From verdicts to precisions: pinned nodes stay FP32, the rest is FP16, movers follow what is around them."""

from __future__ import annotations

import onnx_ir as ir

from stages.graph.decide import Rules, decide
from stages.graph.normalize import normalize
from stages.graph.place import eager


def fp32_nodes(body: str, pins: str, keep_io_types: bool = True, inputs: str = "float[2,2] x") -> set[str]:
    model = ir.from_onnx_text(
        f'<ir_version: 8, opset_import: ["": 17]> g ({inputs}) => (float[a,b] y) <int64[2] s = {{2, 2}}> {{ {body} }}'
    )
    normalize(model)
    decisions = decide(model, None, Rules(node_block_list=(pins,)))
    return {node.name or "" for node, dtype in eager(decisions, keep_io_types).items() if dtype == ir.DataType.FLOAT}


def test_what_is_not_pinned_is_fp16() -> None:
    assert fp32_nodes("[a] u = Relu(x) [pin] v = Exp(u) [c] y = Relu(v)", "pin") == {"pin"}


def test_movers_between_pinned_nodes_stay_fp32() -> None:
    body = "[pin1] u = Exp(x) [m1] v = Reshape(u, s) [m2] w = Transpose(v) [pin2] y = Exp(w)"
    assert fp32_nodes(body, "pin") == {"pin1", "m1", "m2", "pin2"}


def test_movers_that_touch_one_fp16_node_are_fp16() -> None:
    body = "[pin1] u = Exp(x) [m1] v = Reshape(u, s) [m2] w = Transpose(v) [free] z = Relu(w) [pin2] y = Add(v, z)"
    assert fp32_nodes(body, "pin") == {"pin1", "pin2"}


def test_movers_between_fp32_inputs_and_pinned_nodes_stay_fp32() -> None:
    body = "[m] u = Transpose(x) [pin] y = Exp(u)"
    assert fp32_nodes(body, "pin") == {"m", "pin"}
    assert fp32_nodes(body, "pin", keep_io_types=False) == {"pin"}


def test_movers_between_pinned_nodes_and_fp32_outputs_stay_fp32() -> None:
    body = "[pin] u = Exp(x) [m] y = Transpose(u)"
    assert fp32_nodes(body, "pin") == {"m", "pin"}
    assert fp32_nodes(body, "pin", keep_io_types=False) == {"pin"}


def test_comparisons_follow_their_inputs() -> None:
    body = "[pin1] u = Exp(x) [cmp] c = Greater(u, u) [free] z = Relu(x) [w] y = Where(c, z, z)"
    assert fp32_nodes(body, "pin") == {"pin1", "cmp"}


def test_arithmetic_between_pinned_nodes_is_fp16() -> None:
    assert fp32_nodes("[pin1] u = Exp(x) [a] v = Relu(u) [pin2] y = Exp(v)", "pin") == {"pin1", "pin2"}
