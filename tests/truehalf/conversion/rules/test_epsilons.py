"""Epsilons that float16 loses: what they guard stays FP32."""

from __future__ import annotations

import pytest

from tests.messages import expect
from tests.truehalf.conversion.rules.judging import judge, rules_by_node

HEAD = "(float[2,3] x, float[2,3] n, bool[2,3] c) => (float[2,3] y) "
CONSTANTS = "float one = {1}, float minus = {-0.5}, float two = {2}, int64[2] s = {2, 3}, int64[1] last = {1}"


def kept(body: str, epsilon: float) -> list[str]:
    """Names of the nodes that an epsilon keeps FP32."""
    text = HEAD + f"<float eps = {{{epsilon!r}}}, {CONSTANTS}> {{ {body} }}"
    return [name for name, decision in judge(text, epsilons=True).items() if decision.rule == "epsilon"]


@pytest.mark.parametrize(
    ("body", "nodes"),
    [
        ("[e] a = Add(n, eps) [f] y = Div(x, a)", "ef"),
        ("[e] a = Max(eps, n) [f] y = Log(a)", "ef"),
        ("[e] a = Clip(n, eps) [f] b = Reciprocal(a) [g] y = Mul(x, b)", "efg"),
        ("[e] a = Where(c, n, eps) [f] y = Div(x, a)", "ef"),
        ("w = Expand(eps, s) [e] a = Where(c, w, n) [f] y = Div(x, a)", "ef"),
        ("[e] a = Add(n, eps) [f] y = Sqrt(a)", "ef"),
        ("[e] a = Add(n, eps) [f] b = Pow(a, minus) [g] y = Mul(x, b)", "ef"),  # 1e-8 ^ -0.5 is 1e4
        ("[e] a = Add(n, eps) [m] b = Identity(a) [f] y = Div(x, b)", "emf"),
        ("[q] q = Mul(n, n) [s] t = ReduceMean<axes = [1]>(q) [e] a = Add(t, eps) [f] y = Div(x, a)", "sef"),
        ("[e] a = Add(n, eps) [m] b = Identity(a) [dead] d = Exp(b) [f] y = Log(a)", "ef"),
        ("[e] a = Add(n, eps) [f] y = Div(a, x)", ""),  # a numerator
        ("[e] a = Add(n, eps) [f] y = Pow(a, two)", "ef"),  # keeps it, too, for what follows
        ("[e] a = Add(n, eps) [f] y = Exp(a)", ""),
        ("[e] a = Mul(n, eps) [f] y = Log(a)", ""),
    ],
)
def test_what_an_epsilon_guards_that_float16_makes_0(body: str, nodes: str) -> None:
    assert kept(body, 1e-8) == list(nodes)
    assert kept(body, 1e-3) == []


def test_a_root_of_an_epsilon_may_be_large_enough_and_its_reciprocal_too_large() -> None:
    body = "[e] a = Add(n, eps) [r] b = Sqrt(a) [f] y = Div(x, b)"
    assert kept(body, 1e-12) == list("er")  # 1e-6, which float16 holds
    assert kept(body, 1e-16) == list("erf")  # 1e-8, which it does not
    body = "[e] a = Add(n, eps) [r] b = Sqrt(a) [f] d = Div(one, b) [m] i = Identity(d) [g] y = Mul(x, i)"
    assert kept(body, 1e-12) == list("erfmg")  # 1e6 is Inf
    assert kept(body, 1e-7) == []  # 3e3


def test_a_logarithm_needs_the_value_of_its_epsilon() -> None:
    body = "[e] a = Add(n, eps) [f] y = {}"
    assert kept(body.format("Log(a)"), 1e-7) == ["e", "f"]  # 19 % off
    assert kept(body.format("Log(a)"), 1e-5) == []  # 0.14 % off
    assert kept(body.format("Div(x, a)"), 1e-7) == []  # no zero, and that is what it is for


def test_the_reason_names_the_epsilon_and_the_node() -> None:
    text = HEAD + "<float eps = {1e-8}> { [e] a = Add(n, eps) [f] y = Div(x, a) }"
    found = judge(text, epsilons=True)["e"]
    assert (found.rule, found.value, found.tensor) == ("epsilon", pytest.approx(1e-8), "eps")
    expect(found.reason, None, "epsilon", "'eps'", "1e-08", 0, "Div", "'f'")
    assert judge(text)["e"].rule == "none"


def test_clip_before_opset_11_has_its_floor_in_an_attribute() -> None:
    text = """<ir_version: 8, opset_import: ["": 10]> g (float[2] x) => (float[2] y)
        { [e] a = Clip<min = 1e-9>(x) [f] y = Log(a) }"""
    assert rules_by_node(text, epsilons=True) == {"e": "epsilon", "f": "epsilon"}
