"""Variance as a difference of means."""

from __future__ import annotations

import pytest

from tests.truehalf.conversion.rules.judging import rules_by_node

HEAD = """(float[2,8] x, float[2,1] z) => (float[2,1] y)
    <float eighth = {0.125}, float two = {2.0}, float three = {3.0}, float eight = {8.0}, int64[1] last = {1}> """

FLAX = """[s] s = ReduceSum(x, last) [m] m = Mul(s, eighth) [q] q = Mul(x, x) [t] t = ReduceSum(q, last)
    [a] a = Mul(eighth, t) [b] b = Mul(m, m) [v] v = Sub(a, b) [r] y = Sqrt(v)"""
POWERS = """[m] m = ReduceMean<axes=[1]>(x) [q] q = Pow(x, two) [a] a = ReduceMean<axes=[1]>(q)
    [b] b = Pow(m, two) [v] v = Sub(a, b) [r] y = Sqrt(v)"""
SUM_OF_SQUARES = """[s] s = ReduceSum(x, last) [m] m = Div(s, eight) [t] t = ReduceSumSquare<axes=[1]>(x)
    [a] a = Div(t, eight) [b] b = Mul(m, m) [v] v = Sub(a, b) [r] y = Sqrt(v)"""


@pytest.mark.parametrize(
    ("body", "kept"), [(FLAX, "smqtabv"), (POWERS, "mqabv"), (SUM_OF_SQUARES, "smtabv")], ids=["flax", "pow", "sum"]
)
def test_the_parts_of_a_variance_stay_fp32(body: str, kept: str) -> None:
    found = rules_by_node(HEAD + "{" + body + "}")
    assert {name for name, rule in found.items() if rule == "variance"} == set(kept)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("[b] b = Pow(m, two)", "[b] b = Pow(m, three)"),
        ("[b] b = Pow(m, two)", "[b] b = Mul(m, z)"),
        ("[q] q = Pow(x, two)", "[q] q = Pow(x, three)"),
        ("[q] q = Pow(x, two)", "[n] n = Neg(x) [q] q = Pow(n, two)"),
        ("[v] v = Sub(a, b)", "[v] v = Sub(b, a)"),
        ("[v] v = Sub(a, b)", "[v] v = Add(a, b)"),
        ("[a] a = ReduceMean<axes=[1]>(q)", "[a] a = ReduceMax<axes=[1]>(q)"),
    ],
)
def test_other_differences_say_nothing(before: str, after: str) -> None:
    assert before in POWERS
    found = rules_by_node(HEAD + "{" + POWERS.replace(before, after) + "}")
    assert "variance" not in found.values()
