"""Conversion around If, Loop and Scan: what subgraphs capture, pass on and output."""

from __future__ import annotations

import pytest

from tests.truehalf.conversion.conversion import FLOAT, FLOAT16, X, all_ops, ops, same, types

BRANCHES = """(float[2,2] x, bool c) => (float[2,2] y) <float[2,2] w = {1.0, 2.0, 3.0, 4.0}>
    { a = Relu(x) b = MatMul(a, w)
    r = If(c) <then_branch = t () => (float[2,2] ty) { [%s] ty = MatMul(b, w) },
    else_branch = e () => (float[2,2] ey) { k = Constant<value_float = 0.5>() ey = Mul(b, k) }> y = Add(r, b) }"""


def test_branches_are_converted_with_what_they_capture() -> None:
    for c in (True, False):
        result = same(BRANCHES % "m", X, c)
    assert {t.name: t.data_type for t in result.graph.initializer} == {"w": FLOAT16}
    assert all_ops(result).count("Cast") == 2  # x and y


def test_a_pinned_node_in_a_branch_is_cast_inside_and_what_it_captures_outside() -> None:
    for c in (True, False):
        result = same(BRANCHES % "pin", X, c)
    assert {t.name: t.data_type for t in result.graph.initializer} == {"w": FLOAT, "w_fp16": FLOAT16}
    assert ops(result).count("Cast") == 3  # x, b, y; r is float16 in both branches
    assert all_ops(result).count("Cast") == 4


def test_branches_of_a_pinned_if_put_out_float32() -> None:
    text = BRANCHES.replace("r = If", "[pin] r = If") % "m"
    for c in (True, False):
        assert types(same(text, X, c))["r"] == FLOAT


LOOP = """(float[2,2] x) => (float[2,2] y, float[3,2,2] z) <int64 n = {3}, bool go = {1}> { a = Relu(x)
    b, t = Loop(n, go, a) <body = l (int64 i, bool c, float[2,2] s) => (bool d, float[2,2] u, float[2,2] v)
        { d = Identity(c) u = Add(s, a) v = Neg(u) }>
    y = Relu(b) z = Relu(t) }"""


SCAN = """(float[2,2] x) => (float[2] y, float[2,2] z) <float[2] zero = {0.0, 0.0}>
    { a = Relu(x) s, t = Scan<num_scan_inputs = 1, body =
        l (float[2] s0, float[2] r) => (float[2] s1, float[2] o) { s1 = Add(s0, r) o = Neg(s1) }>(zero, a)
    y = Relu(s) z = Relu(t) }"""


@pytest.mark.parametrize("text", [LOOP, SCAN])
def test_loop_and_scan_stay_float32(text: str) -> None:
    """Two casts around the Relu before it, which is captured or passed in, and one after each output."""
    result = same(text, X)
    found = types(result)
    assert (found["t"], found["b" if text is LOOP else "s"]) == (FLOAT, FLOAT)
    assert FLOAT16 in found.values()
    (held,) = [node for node in result.graph.node if node.op_type in ("Loop", "Scan")]
    body = next(attribute.g for attribute in held.attribute if attribute.name == "body")
    assert "Cast" not in {node.op_type for node in body.node}


def test_nested_subgraphs() -> None:
    text = """(float[2,2] x, bool c) => (float[2,2] y) { a = Relu(x)
        y = If(c) <then_branch = t () => (float[2,2] ty) {
            ty = If(c) <then_branch = t2 () => (float[2,2] t2y) { t2y = Neg(a) },
                else_branch = e2 () => (float[2,2] e2y) { e2y = Exp(a) }> },
        else_branch = e () => (float[2,2] ey) { ey = Relu(a) }> }"""
    same(text, X, True)


def test_a_branch_may_put_out_what_it_captures_or_a_constant() -> None:
    text = """(float[2] x, bool c) => (float[2] y) <float[2] w = {1.5, 2.5}> { a = Relu(x)
        r = If(c) <then_branch = t () => (float[2] p) { p = Identity(w) },
        else_branch = e () => (float[2] q) { q = Constant<value_floats = [0.5, 0.25]>() }> y = Add(r, a) }"""
    for c in (True, False):
        same(text, X[0], c)


CALLED_TWICE = """<ir_version: 10, opset_import: ["": 17, "l": 1]> g (float[2,2] x, bool c) => (float[2,2] y)
    { h = l.f(x, c) y = l.f(h, c) }
    <domain: "l", opset_import: ["": 17]> f (a, c) => (b) %s"""


@pytest.mark.parametrize(
    "body",
    [
        """{ [i] b = If(c) <then_branch = t () => (float[2,2] p) <float[2,2] w = {1.0, 2.0, 3.0, 4.0}>
            { [m] p = MatMul(a, w) },
                else_branch = e () => (float[2,2] q) { [r] q = Relu(a) }> }""",
        "<float[2,2] m> { [m] m = MatMul(a, a) [r] b = Relu(m) }",
    ],
)
@pytest.mark.parametrize("pins", ["_2$", "^.$"])  # nodes of the second call, and of the first
def test_calls_of_a_function_that_states_types_are_converted_each_by_itself(body: str, pins: str) -> None:
    for c in (True, False):
        same(CALLED_TWICE % body, X, c, pins=pins)
