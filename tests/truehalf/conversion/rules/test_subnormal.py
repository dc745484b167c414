"""Tensors below the smallest normal, and where their error is felt."""

from __future__ import annotations

import pytest

from tests.messages import expect
from tests.truehalf.conversion.rules.judging import judge, rules_by_node

ON = {"underflow_share_max": 0.01}
CHAIN = "(float[2] x) => (float[2] y) { [p] a = Relu(x) [q] b = LpNormalization(a) [r] y = Relu(b) }"


@pytest.mark.parametrize(
    ("absmax", "rule"),
    [(2.9e-6, "underflow"), (3.1e-6, "none"), (2.0**-14, "none"), (0.0, "none"), (1e-9, "underflow")],
)
def test_a_tensor_below_the_smallest_normal(absmax: float, rule: str) -> None:
    """2^-25, the error, is 1 % of 3e-6."""
    found = rules_by_node(CHAIN, {"a": {"absmax": absmax}, "b": {"absmax": 1.0}, "y": {"absmax": 1.0}}, **ON)
    assert found == {"p": rule, "q": rule, "r": "none"}
    assert rules_by_node(CHAIN, {"a": {"absmax": absmax}})["p"] == "none"


@pytest.mark.parametrize(
    ("reader", "result", "rule"),
    [
        ("Add(x, b)", 1.0, "none"),  # a residual branch: 2^-25 more or less is nothing there
        ("Add(x, b)", 1e-4, "none"),  # nor is it there, in float16
        ("Add(x, b)", 2e-6, "underflow"),  # a tiny graph output
        ("Softmax(b)", 0.5, "none"),
        ("Exp(b)", 1.0, "none"),
        ("Mul(x, b)", 0.05, "underflow"),  # enlarged, with its error, up to 5e4 times
        ("Mul(one, b)", 1e-6, "underflow"),  # a tiny graph output is all that somebody will see
        ("MatMul(b, w)", 0.01, "none"),  # at most twice the error: 2^-24 < 0.01 * 0.01
        ("MatMul(b, w)", 4e-6, "underflow"),
        ("LpNormalization(b)", 1.0, "underflow"),
        ("Identity(b)", 1e-6, "underflow"),
    ],
)
def test_a_tiny_tensor_counts_where_its_error_is_felt(reader: str, result: float, rule: str) -> None:
    text = f"""(float[2] x) => (float[n] y) <float one = {{1.0}}, float[2,1] w = {{0.5, 1.0}}>
        {{ [p] a = Abs(x) [move] b = Identity(a) [q] y = {reader} }}"""
    tensors = {"x": {"absmax": 5e4}, "a": {"absmax": 1e-6}, "b": {"absmax": 1e-6}, "y": {"absmax": result}}
    assert rules_by_node(text, tensors, **ON) == {"p": rule, "move": rule, "q": rule}


@pytest.mark.parametrize(("end", "rule"), [("Add(x, c)", "none"), ("Mul(x, c)", "underflow")])
def test_what_is_made_of_a_tiny_tensor_decides(end: str, rule: str) -> None:
    text = f"""(float[2] x) => (float[2] y) <float two = {{2.0}}>
        {{ [p] a = Abs(x) [scale] b = Mul(a, two) [norm] c = LpNormalization(b) [q] y = {end} }}"""
    tensors = {"x": 5e4, "a": 1e-6, "b": 2e-6, "c": 2e-6, "y": 0.1}
    found = rules_by_node(text, {name: {"absmax": absmax} for name, absmax in tensors.items()}, **ON)
    assert set(found.values()) == {rule}


def test_a_reader_that_allows_the_error_is_no_candidate() -> None:
    text = """(float[2] x) => (float[2] y, float[2] z)
        { [p] a = Abs(x) [felt] y = LpNormalization(a) [hidden] z = Sigmoid(a) }"""
    tensors = {"a": {"absmax": 1e-6, "sample": "s"}, "y": {"absmax": 1.0}, "z": {"absmax": 0.5}}
    found = judge(text, tensors, **ON)
    assert {name: d.rule for name, d in found.items()} == {"p": "underflow", "felt": "underflow", "hidden": "none"}
    expect(found["p"].reason, None, "'a'", "2^-14", "|x| <= 1e-06", "s")


def test_what_nobody_measured_hides_nothing() -> None:
    text = "(float[2] x) => (float[2] y) { [p] a = Abs(x) [q] y = Sigmoid(a) }"
    assert rules_by_node(text, {"a": {"absmax": 1e-6}}, **ON) == {"p": "underflow", "q": "underflow"}
