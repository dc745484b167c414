"""Integers that are known before a run."""

from __future__ import annotations

import pytest

from tests.truehalf.linting.linting import model_of
from truehalf.linting.integers import Known
from truehalf.linting.values import Values


def elements(text: str) -> list[object] | None:
    """Of y, with None for what is not known; None when nothing is."""
    model = model_of(text)
    (y,) = model.graph.outputs
    known: Known | None = Values(model.graph)._known.get(y)
    return known.ravel().tolist() if known is not None else None


CONSTANTS = """int64[1] minus = {-1}, int64[1] one = {1}, int64[2] two = {1, 2}, int64[1] far = {-9},
    int64[1] zeroth = {0}, int64 zero = {0}, int64 third = {3}, int64[1] three = {3}"""


def of(body: str, result: str = "int64[K] y") -> list[object] | None:
    return elements(f"(float[N,3,20,20] x) => ({result}) <{CONSTANTS}> {{ {body} }}")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("y = Shape(x)", [None, 3, 20, 20]),
        ("y = Shape<start = 1, end = 3>(x)", [3, 20]),
        ("s = Shape(x) y = Gather(s, two)", [3, 20]),
        ("s = Shape(x) y = Gather(s, third)", [20]),
        ("s = Shape(x) y = Gather(s, zero)", [None]),
        ("s = Shape(x) y = Concat<axis = 0>(s, minus)", [None, 3, 20, 20, -1]),
        ("s = Shape(x) a = Gather(s, third) y = Unsqueeze(a, zero)", [20]),
        ("s = Shape(x) y = Slice(s, one, minus)", [3, 20]),
        ("s = Shape(x) y = Slice(s, one, far)", []),
        ("s = Shape(x) y = Slice(s, three, far, zeroth, minus)", [20, 20, 3, None]),
        ("f = Cast<to = 7>(x) m = ReduceMax<keepdims = 0>(f) s = Shape(x) y = Mul(s, m)", None),
        ("s = Shape<start = 1>(x) y = ReduceProd(s)", [1200]),
        ("s = Shape(x) y = ReduceProd(s)", None),
        ("s = Shape<start = 2>(x) y = Mul(s, minus)", [-20, -20]),
        ("s = Shape<start = 1>(x) y = Div(minus, s)", [0, 0, 0]),
        ("s = Shape(x) y = Size(s)", [4]),
        ("y = Size(x)", None),
        ("s = Shape<start = 1, end = 2>(x) r = Squeeze(s) y = Range(zero, r, third)", [0]),
        ("s = Shape<start = 2, end = 3>(x) r = Squeeze(s) y = Range(zero, r, r)", [0]),
        ("s = Shape<start = 1>(x) y = Expand(third, one)", [3]),
    ],
)
def test_what_shapes_are_computed_from(body: str, expected: list[object] | None) -> None:
    assert of(body) == expected


def test_a_choice_is_known_where_both_branches_agree_or_the_condition_is_known() -> None:
    body = "s = Shape(x) c = Equal(s, minus) o = ConstantOfShape<value = int64[1] {3}>(four) y = Where(c, o, s)"
    text = f"(float[N,3,20,20] x) => (int64[4] y) <int64[1] four = {{4}}, {CONSTANTS}> {{ {body} }}"
    assert elements(text) == [None, 3, 20, 20]  # where N is compared, nothing is known, and N may be 3


def test_floats_between_are_followed() -> None:
    body = """
    s = Shape<start = 2, end = 3>(x) f = Cast<to = 1>(s) h = Div(f, seven) l = Floor(h) y = Cast<to = 7>(l)
    """
    assert elements(f"(float[N,3,20,20] x) => (int64[1] y) <float[1] seven = {{7}}> {{ {body} }}") == [2]


def test_a_long_tensor_and_a_division_by_0_are_not_followed() -> None:
    assert elements("(float[300] x) => (int64[300] y) <int64[1] n = {300}> { y = ConstantOfShape(n) }") is None
    assert elements("(float[N] x) => (int64 y) <int64 a = {1}, int64 b = {0}> { y = Div(a, b) }") is None


def test_what_is_not_finite_is_no_integer() -> None:
    text = "(float[N] x) => (float[1] y) <float[1] one = {1}, float[1] none = {0}> { y = Div(one, none) }"
    assert elements(text) is None
    masked = """(float[N] x) => (float[1] y) <bool[1] c = {1}, float[1] s = {0}> {
        f = Constant<value = float[1] {-inf}>() y = Where(c, f, s)
    }"""
    model = model_of(masked)
    assert Values(model.graph).integers(model.graph.outputs[0]) is None
