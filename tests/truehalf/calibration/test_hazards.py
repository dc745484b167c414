"""Sums inside nodes and values whose small elements matter, found in the graph alone."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir
import pytest

from tests.messages import expect
from truehalf.calibration.hazards import Reduction, Term, reductions, sensitive
from truehalf.ir.normalize import InferTypes


def model_of(text: str, opset: int = 17) -> ir.Model:
    model = ir.from_onnx_text(f'<ir_version: 8, opset_import: ["": {opset}]> g {text}')
    InferTypes()(model)
    return model


def only(text: str, opset: int = 17) -> Reduction:
    (found,) = reductions(model_of(text, opset))
    return found


def names(text: str, opset: int = 17) -> dict[str, str]:
    return {value.name or "": reason for value, reason in sensitive(model_of(text, opset)).items()}


# --- sums -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inputs", "node", "opset", "term", "terms"),
    [
        ("float[N,4,8] x, float[8] s", "LayerNormalization(x, s)", 17, "deviation", 8),
        ("float[N,4,8] x, float[4,8] s", "LayerNormalization<axis = 1>(x, s)", 17, "deviation", 32),
        ("float[N,4,8] x, float[8] s", "RMSNormalization(x, s)", 23, "square", 8),
        ("float[N,4,5,6] x, float[4] s", "InstanceNormalization(x, s, s)", 17, "deviation", 30),
        ("float[N,4,5,6] x, float[4] s", "GroupNormalization<num_groups = 2>(x, s, s)", 21, "deviation", 60),
        ("float[N,4,5,H] x, float[4] s", "GroupNormalization<num_groups = 2>(x, s, s)", 21, "deviation", None),
        ("float[7,4,5,6] x", "MeanVarianceNormalization(x)", 17, "deviation", 210),
        ("float[N,4,5,6] x", "GlobalAveragePool(x)", 17, "absolute", 30),
        ("float[N,4,5,H] x", "GlobalAveragePool(x)", 17, "absolute", None),
        ("float[1,1,6,6] x", "AveragePool<kernel_shape = [3, 2]>(x)", 17, "absolute", 6),
        ("float[N,4,8] x", "ReduceMean<axes = [1]>(x)", 17, "absolute", 4),
        ("float[3,4] x", "ReduceL2(x)", 17, "square", 12),
        ("float[3,4] x", "ReduceSumSquare(x, last)", 18, "square", 4),
        ("float[3,4] x", "ReduceSum(x, last)", 13, "absolute", 4),
        ("float[3,4] x, int64[A] a", "ReduceSum(x, a)", 13, "absolute", 12),
        ("float[3,4] x", "ReduceLogSumExp(x)", 17, "exp", 12),
        ("float[3,4] x", "CumSum(x, last)", 17, "absolute", 4),
        ("float[3,4] x", "LpNormalization(x)", 17, "square", 4),
        ("float[3,4] x", "LpNormalization<axis = 0, p = 1>(x)", 17, "absolute", 3),
        ("float[N,4,5,6] x", "GlobalLpPool(x)", 17, "square", 30),
        ("float[N,4,5,6] x", "GlobalLpPool<p = 1>(x)", 17, "absolute", 30),
        ("float[N,4,5,6] x", "GlobalLpPool<p = 3>(x)", 17, "power", 30),
        ("float[N,4,5,6] x", "LpPool<kernel_shape = [2, 3]>(x)", 17, "square", 6),
        ("float[N,4,5,6] x", "LRN<size = 3>(x)", 17, "square", 3),
        ("float[3,4] x, int64[1] a", "CumSum(x, a)", 17, "absolute", 12),
        ("float[2,70000] x", "Softmax(x)", 17, "shifted_exp", 70000),
        ("float[2,300,300] x", "LogSoftmax(x)", 11, "shifted_exp", 90000),
        ("float[2,N] x", "Softmax(x)", 17, "shifted_exp", None),
    ],
)
def test_what_is_added_up(inputs: str, node: str, opset: int, term: str, terms: int | None) -> None:
    found = only(f"({inputs}) => (float y) <int64[1] last = {{-1}}> {{ y = {node} }}", opset)
    assert (found.term, found.terms, found.source.name) == (Term[term], terms, "x")
    is_mean = "Normalization" in node and not node.startswith("Lp")
    assert found.quantity == ("mean_square" if is_mean else "sum")


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
    assert sensitive(model_of(text)) == {}


@pytest.mark.parametrize("seed", range(20))
def test_bounds_hold(seed: int) -> None:
    generator = np.random.default_rng(seed)
    x = generator.standard_normal((3, 8)) * 10 ** generator.uniform(-2, 3) + generator.normal() * 100
    low, high, shape = float(x.min()), float(x.max()), "(float[3,8] x) => (float[3,K] y)"
    mean_square = only("(float[3,8] x, float[8] s) => (float[3,8] y) { y = LayerNormalization(x, s) }")
    assert x.var(axis=1).max() <= mean_square.bound(low, high, 24) * (1 + 1e-12)
    rms = only("(float[3,8] x, float[8] s) => (float[3,8] y) { y = RMSNormalization(x, s) }", 23)
    assert (x**2).mean(axis=1).max() <= rms.bound(low, high, 24)
    total = only(f"{shape} {{ y = ReduceSum<axes = [1]>(x) }}", 11)
    assert np.abs(x).sum(axis=1).max() <= total.bound(low, high, 24) == 8 * max(-low, high)
    squares = only(f"{shape} {{ y = ReduceL2<axes = [1]>(x) }}")
    assert (x**2).sum(axis=1).max() <= squares.bound(low, high, 24)


def test_popoviciu_is_reached_by_two_values() -> None:
    found = only("(float[2] x, float[2] s) => (float[2] y) { y = LayerNormalization(x, s) }")
    assert found.bound(-3.0, 5.0, 2) == np.var([-3.0, 5.0]) == 16


def test_bounds_without_shapes_and_beyond_float32() -> None:
    pooled = only("(float[N,4,H,W] x) => (float[N,4,1,1] y) { y = GlobalAveragePool(x) }")
    assert pooled.bound(-1.0, 2.0, 4 * 100) == 2 * 400  # at most all elements of a run
    row = only("(float[2,N] x) => (float[2,N] y) { y = Softmax(x) }")
    assert (row.bound(0, 1, 65504), row.bound(0, 1, 65505)) == (0, 65505)
    exps = only("(float[3,4] x) => (float[1,1] y) { y = ReduceLogSumExp(x) }")
    assert exps.bound(-1e30, 1.0, 12) == pytest.approx(12 * math.e)
    assert exps.bound(0.0, 1e30, 12) == math.inf


# --- small values -----------------------------------------------------------------------------------------------------


def test_inverse_sigmoid() -> None:
    found = names(
        """(float[4] x) => (float[4] y) <float lo = {1e-5}, float hi = {1.0}, float one = {1.0}> {
            p = Sigmoid(x)  r = Sub(one, p)
            a = Clip(p, lo, hi)  b = Clip(r, lo, hi)
            q = Div(a, b)  [log] y = Log(q)
        }"""
    )
    assert set(found) == {"q", "a", "b", "p", "r", "lo", "hi"}  # small p in 1 - p does not matter: one is no epsilon
    expect(found["p"], None, "Log", "'log'")
    expect(found["b"], None, "Div", "'q'")


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ("y = Log(a)", {"a", "x"}),
        ("y = Reciprocal(a)", {"a", "x"}),
        ("y = Div(one, a)", {"a", "x"}),
        ("y = Div(a, one)", {"one"}),
        ("y = Pow(a, minus)", {"a", "x"}),
        ("y = Pow(a, one)", set()),
        ("y = Sqrt(a)", set()),
        ("s = Sqrt(a)  y = Div(one, s)", {"s", "a", "x"}),
        ("s = Add(a, eps)  y = Div(one, s)", {"s", "a", "x", "eps"}),
        ("s = Add(a, one)  y = Div(one, s)", {"s"}),
        ("s = Max(eps, a)  y = Log(s)", {"s", "a", "x", "eps"}),
        ("s = Max(a, floor)  y = Log(s)", {"s"}),
        ("s = Clip(a, eps)  y = Log(s)", {"s", "a", "x", "eps"}),
        ("s = Clip(a, floor)  y = Log(s)", {"s"}),
        ("s = Clip(a,,one)  y = Log(s)", {"s", "a", "x", "one"}),
        ("s = Unsqueeze(a, axis)  t = Concat<axis = 0>(s, s)  y = Log(t)", {"t", "s", "a", "x"}),
        ("s = Exp(a)  y = Log(s)", {"s"}),
    ],
)
def test_where_small_elements_matter(node: str, expected: set[str]) -> None:
    head = """(float[4] x) => (float[K] y)
        <float one = {1.0}, float eps = {1e-8}, float floor = {0.001}, float minus = {-0.5}, int64[1] axis = {0}>"""
    assert set(names(f"{head} {{ a = Identity(x)  {node} }}")) == expected


def test_bounds_of_a_clip_are_attributes_in_old_opsets() -> None:
    text = "(float[4] x) => (float[4] y) { c = Clip<min = %s>(x)  y = Log(c) }"
    assert set(names(text % "0.001", 10)) == {"c"}
    assert set(names(text % "0.000001", 10)) == {"c", "x"}


def test_integers_and_other_domains_have_no_small_values() -> None:
    assert names("(int64[4] x) => (int64[4] y) { y = Div(x, x) }") == {}
    custom = '<ir_version: 8, opset_import: ["": 17, "mine": 1]> g (float[4] x) => (float[4] y) { y = mine.Log(x) }'
    assert sensitive(ir.from_onnx_text(custom)) == {}
