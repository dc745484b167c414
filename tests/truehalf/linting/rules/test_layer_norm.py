"""Layer norms that are spelt out."""

from __future__ import annotations

import pytest

from tests.truehalf.linting.linting import found, only

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
        norm(quotient="y = Div(x, r)"),  # no mean taken off
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
        "not centred",
        "other mean",
        "turned",
        "times",
    ],
)
def test_something_else(text: str) -> None:
    assert found(text) == []


def test_the_way_out_depends_on_axes_and_opset() -> None:
    function, permutes, opset_17 = "torch.nn.functional.layer_norm", "permuted", "opset 17"
    channels, last = (norm().replace("axes = [-1]", f"axes = [{axis}]") for axis in (1, 2))
    for text, opset, expected in [
        (norm(), 16, {opset_17}),
        (channels, 17, {function, permutes}),
        (channels, 16, {function, permutes, opset_17}),
        (last, 17, {function}),
    ]:
        remedy = only(text, opset).remedy
        assert {fact for fact in (function, permutes, opset_17) if fact in remedy} == expected


@pytest.mark.parametrize(("axis", "permuted"), [(-1, False), (2, False), (1, True)])
def test_axes_as_an_input(axis: int, permuted: bool) -> None:
    text = norm().replace("ReduceMean<axes = [-1]>(x)", "ReduceMean(x, last)")
    text = text.replace("ReduceMean<axes = [-1]>(q)", "ReduceMean(q, last)")
    text = text.replace("float two", f"int64[1] last = {{{axis}}}, float two")
    assert ("permuted" in only(text, 18).remedy) is permuted


def test_layer_normalization_is_none() -> None:
    assert found("(float[N,8] x, float[8] s) => (float[N,8] y) { y = LayerNormalization(x, s) }") == []
