"""Small values: constants that vanish, epsilons, variances."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.messages import expect
from tests.truehalf.conversion.rules.judging import judge, rules_by_node

ON = {"underflow_share_max": 0.01}


def constant(weight: list[float], node: str = "Mul(x, w)", **rules: Any) -> str:
    text = f"(float[4] x) => (float[4] y) <float[4] w = {{0, 0, 0, 0}}> {{ [n] y = {node} }}"
    return judge(text, weights={"w": np.array(weight, np.float32)}, **rules)["n"].rule


@pytest.mark.parametrize(
    ("weight", "found"),
    [
        ([1e-8, 1e-4, 1e-4, 1e-4], "underflow"),  # 1 of 4
        ([-1e-8, 0, 0, 0], "underflow"),  # 1 of the 1 that is not zero
        ([2.0**-25, 1e-4, 1e-4, 1e-4], "underflow"),  # a tie goes to 0
        ([3e-8, 1e-4, 1e-4, 1e-4], "none"),  # the smallest subnormal is nearer
        ([1e-8, 1, 1, 1], "none"),  # less than the rounding of the largest
        ([0, 0, 0, 0], "none"),
    ],
)
def test_constants_that_vanish(weight: list[float], found: str) -> None:
    assert constant(weight, underflow_share_max=0.2) == found
    assert constant(weight, underflow_share_max=None) == "none"
    assert constant([1e-8, 1e-4, 1e-4, 1e-4], underflow_share_max=0.25) == "none"


def test_a_vanishing_divisor_matters_and_a_vanishing_addend_does_not() -> None:
    assert constant([1e-8, 1, 1, 1], "Div(x, w)", **ON) == "underflow"
    assert constant([1e-8, 1e-8, 1e-8, 1e-8], "Add(x, w)", **ON) == "none"


HEAD = "(float[2] x, float[2] n) => (float[2] y) "


def epsilon(body: str, value: float) -> list[str]:
    """Names of the nodes that an epsilon makes candidates."""
    text = HEAD + f"<float eps = {{{value!r}}}, float minus = {{-0.5}}, float two = {{2.0}}> {{ {body} }}"
    return [name for name, d in judge(text, underflow_share_max=0.01).items() if "epsilon" in d.reason]


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        ("[e] a = Add(n, eps) [f] y = Div(x, a)", ["e", "f"]),
        ("[e] a = Max(eps, n) [f] y = Log(a)", ["e", "f"]),
        ("[e] a = Clip(n, eps) [f] y = Reciprocal(a)", ["e", "f"]),
        ("[e] a = Add(n, eps) [f] y = Sqrt(a)", ["e", "f"]),
        ("[e] a = Add(n, eps) [f] y = Pow(a, minus)", ["e", "f"]),
        ("[e] a = Add(n, eps) [m] b = Identity(a) [f] y = Div(x, b)", ["e", "m", "f"]),
        ("[e] a = Add(n, eps) [f] y = Div(a, x)", []),  # a numerator
        ("[e] a = Add(n, eps) [f] y = Pow(a, two)", []),
        ("[e] a = Add(n, eps) [f] y = Exp(a)", []),
        ("[e] a = Mul(n, eps) [f] y = Log(a)", []),
        ("[e] a = Add(n, eps) [m] b = Identity(a) [dead] d = Exp(b) [f] y = Log(a)", ["e", "f"]),
    ],
)
def test_epsilons_that_float16_loses(body: str, kept: list[str]) -> None:
    assert epsilon(body, 1e-8) == kept
    assert epsilon(body, 1e-4) == []


def test_a_root_of_an_epsilon_may_be_large_enough() -> None:
    body = "[e] a = Add(n, eps) [r] b = Sqrt(a) [f] y = Div(x, b)"
    assert epsilon(body, 1e-12) == ["e", "r"]  # 1e-6, which float16 holds
    assert epsilon(body, 1e-16) == ["e", "r", "f"]  # 1e-8, which it does not


def test_a_logarithm_needs_the_value_of_its_epsilon() -> None:
    body = "[e] a = Add(n, eps) [f] y = {}"
    assert epsilon(body.format("Log(a)"), 1e-7) == ["e", "f"]  # 19 % off
    assert epsilon(body.format("Log(a)"), 1e-5) == []  # 0.14 % off
    assert epsilon(body.format("Div(x, a)"), 1e-7) == []  # no zero, and that is what it is for


def test_the_reason_names_what_is_protected() -> None:
    text = HEAD + "<float eps = {1e-8}> { [e] a = Add(n, eps) [f] y = Div(x, a) }"
    found = judge(text, **ON)["e"]
    assert (found.rule, found.value, found.tensor) == ("underflow", pytest.approx(1e-8), "eps")
    expect(found.reason, None, "epsilon", "'eps'", "1e-08", 0, "Div", "'f'")


def variance(values: list[float], epsilon: float, **rules: Any) -> Any:
    text = f"""(float[1,3,2] x) => (float[1,3,2] y) <float[3] s = {{1, 1, 1}}, float[3] v = {{1, 1, 1}}>
        {{ [n] y = BatchNormalization<epsilon = {epsilon!r}>(x, s, s, s, v) }}"""
    return judge(text, weights={"v": np.array(values, np.float32)}, **rules)["n"]


@pytest.mark.parametrize(
    ("values", "epsilon", "rule"),
    [
        ([1.0, 1e-8, 1.0], 1e-12, "underflow"),  # one channel is enough
        ([1.0, 1e-7, 1.0], 1e-12, "underflow"),  # 19 % off
        ([1.0, 1e-5, 1.0], 1e-12, "none"),
        ([1.0, 1e-8, 0.0], 1e-5, "none"),  # epsilon is all that counts
        ([1.0, 0.0, 1.0], 1e-12, "underflow"),  # nothing is left
        ([1.0, 0.0, 1.0], 1e-6, "none"),  # 0 is exact
    ],
)
def test_variances_that_float16_loses(values: list[float], epsilon: float, rule: str) -> None:
    assert variance(values, epsilon, **ON).rule == rule
    assert variance(values, epsilon).rule == "none"


def test_the_variance_and_its_epsilon_are_said() -> None:
    found = variance([1.0, 1e-8, 1.0], 1e-12, **ON)
    expect(found.reason, None, "variance", "'v' = 1e-08", "epsilon = 1e-12")
    assert (found.value, found.tensor) == (pytest.approx(1e-8), "v")


@pytest.mark.parametrize(
    ("low", "epsilon", "rule"),
    [(1e-8, 1e-12, "underflow"), (0.0, 1e-12, "underflow"), (1e-3, 1e-12, "none"), (0.0, 1e-5, "none")],
)
def test_a_variance_that_is_computed_is_judged_by_its_extremes(low: float, epsilon: float, rule: str) -> None:
    text = f"""(float[1,3,2] x, float[3] u) => (float[1,3,2] y) <float[3] s = {{1, 1, 1}}>
        {{ [p] v = Abs(u) [n] y = BatchNormalization<epsilon = {epsilon!r}>(x, s, s, s, v) }}"""
    tensors = {"v": {"absmax": 1.0, "min": low, "sample": "s1"}}
    assert judge(text, tensors, **ON)["n"].rule == rule
    assert judge(text, **ON)["n"].rule == "none"


def test_clip_before_opset_11_has_its_floor_in_an_attribute() -> None:
    text = """<ir_version: 8, opset_import: ["": 10]> g (float[2] x) => (float[2] y)
        { [e] a = Clip<min = 1e-9>(x) [f] y = Log(a) }"""
    assert rules_by_node(text, **ON) == {"e": "underflow", "f": "underflow"}
