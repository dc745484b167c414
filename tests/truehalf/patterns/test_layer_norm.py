"""Layer norms that are spelt out."""

from __future__ import annotations

import pytest

from tests.truehalf.patterns.linting import found

NORM = """
(float[N,4,8] x) => (float[N,4,8] y) <float two = {2}, float eps = {0.00001}, float one = {1},
    float half = {0.5}, float minus_half = {-0.5}> {
    m = ReduceMean<axes = [-1]>(x)
    d = Sub(x, m)
    q = SQUARE
    v = ReduceMean<axes = [-1]>(q)
    a = SHIFT
    r = Sqrt(a)
    QUOTIENT
}
"""


def norm(square: str = "Pow(d, two)", shift: str = "Add(v, eps)", quotient: str = "y = Div(d, r)") -> str:
    return NORM.replace("SQUARE", square).replace("SHIFT", shift).replace("QUOTIENT", quotient)


@pytest.mark.parametrize(
    "text",
    [
        norm(),
        norm(square="Mul(d, d)"),
        norm(shift="Add(eps, v)"),
        norm(quotient="i = Reciprocal(r) y = Mul(d, i)"),
        norm(quotient="i = Div(one, r) y = Mul(d, i)"),
        norm(quotient="d2 = Sub(x, m) y = Div(d2, r)"),
        norm().replace("Sqrt(a)", "Pow(a, half)"),
        norm(quotient="y = Mul(d, r)").replace("Sqrt(a)", "Pow(a, minus_half)"),
    ],
)
def test_a_layer_norm_spelt_out(text: str) -> None:
    assert found(text) == [("warning", "decomposed-layer-norm")]


@pytest.mark.parametrize(
    "text",
    [
        norm(square="Pow(d, eps)"),
        norm(square="Mul(d, x)"),
        norm(shift="Mul(v, eps)"),
        norm(shift="Add(v, m)"),
        norm(quotient="y = Mul(d, r)"),
        norm().replace("m = ReduceMean<axes = [-1]>(x)", "n = Relu(x) m = ReduceMean<axes = [-1]>(n)"),
        norm().replace("d = Sub(x, m)", "d = Sub(m, x)"),
        norm().replace("Sqrt(a)", "Pow(a, minus_half)"),
    ],
    ids=[
        "power",
        "no square",
        "no epsilon",
        "a variable shift",
        "no quotient",
        "other mean",
        "turned",
        "times",
    ],
)
def test_something_else(text: str) -> None:
    assert found(text) == []


def test_layer_normalization_is_none() -> None:
    assert found("(float[N,8] x, float[8] s) => (float[N,8] y) { y = LayerNormalization(x, s) }") == []
