"""Sums inside nodes, found in the graph alone."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from truehalf.calibration.sums import Reduction, reductions
from truehalf.ir.normalize import InferTypes


def model_of(text: str, opset: int = 17) -> ir.Model:
    model = ir.from_onnx_text(f'<ir_version: 8, opset_import: ["": {opset}]> g {text}')
    InferTypes()(model)
    return model


def only(text: str, opset: int = 17) -> Reduction:
    (found,) = reductions(model_of(text, opset))
    return found


# --- sums -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inputs", "node", "opset", "term"),
    [
        ("float[N,4,8] x, float[8] s", "LayerNormalization(x, s)", 17, "(x - mean)^2"),
        ("float[N,4,8] x, float[4,8] s", "LayerNormalization<axis = 1>(x, s)", 17, "(x - mean)^2"),
        ("float[N,4,8] x, float[8] s", "RMSNormalization(x, s)", 23, "x^2"),
        ("float[N,4,5,6] x, float[4] s", "InstanceNormalization(x, s, s)", 17, "(x - mean)^2"),
        ("float[N,4,5,6] x, float[4] s", "GroupNormalization<num_groups = 2>(x, s, s)", 21, "(x - mean)^2"),
        ("float[N,4,5,6] x", "GlobalAveragePool(x)", 17, "|x|"),
        ("float[N,4,8] x", "ReduceMean<axes = [1]>(x)", 17, "|x|"),
        ("float[3,4] x", "ReduceL2(x)", 17, "x^2"),
        ("float[3,4] x", "ReduceSumSquare(x, last)", 18, "x^2"),
        ("float[3,4] x", "ReduceSum(x, last)", 13, "|x|"),
        ("float[3,4] x, int64[A] a", "ReduceSum(x, a)", 13, "|x|"),
    ],
)
def test_what_is_added_up(inputs: str, node: str, opset: int, term: str) -> None:
    found = only(f"({inputs}) => (float y) <int64[1] last = {{-1}}> {{ y = {node} }}", opset)
    assert (found.term, found.source.name) == (term, "x")
    assert found.quantity == ("mean_square" if "Normalization" in node else "sum")


@pytest.mark.parametrize(
    ("text", "opset"),
    [
        ("(float[2,300,300] x) => (float[2,300,300] y) { y = Softmax(x) }", 17),
        ("(float[3,4] x) => (float[3,4] y) { y = ReduceSum<noop_with_empty_axes = 1>(x) }", 13),
        ("(int64[3,4] x) => (int64[1,1] y) { y = ReduceSum(x) }", 13),
        ("(float16[3,4] x) => (float16[1,1] y) { y = ReduceSum(x) }", 13),
        ("(float[3,4] x) => (float[1,1] y) { y = ReduceMax(x) }", 13),
    ],
)
def test_no_sum_of_float32_that_could_leave_float16(text: str, opset: int) -> None:
    assert reductions(model_of(text, opset)) == []


def test_bodies_are_skipped() -> None:
    text = """(bool c, float[4] x) => (float[1] y) {
        y = If(c) <then_branch = t () => (float[1] a) { a = ReduceSum(x) },
                   else_branch = e () => (float[1] b) { d = Log(x)  b = ReduceSum(d) }>
    }"""
    assert reductions(model_of(text)) == []
