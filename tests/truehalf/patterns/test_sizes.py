"""Sizes that are moved out of Shape."""

from __future__ import annotations

import pytest

from tests.truehalf.patterns.linting import model_of
from truehalf.patterns.origins import sizes_in


def elements(text: str) -> list[object] | None:
    """Of y, with None for what is not known; None when nothing is."""
    model = model_of(text)
    (y,) = model.graph.outputs
    known = sizes_in(y, {})
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
        ("s = Shape(x) y = Slice(s, three, far, zeroth, minus)", None),
        ("f = Cast<to = 7>(x) m = ReduceMax<keepdims = 0>(f) s = Shape(x) y = Mul(s, m)", None),
        ("s = Shape<start = 1>(x) y = ReduceProd(s)", None),
        ("s = Shape<start = 2>(x) y = Mul(s, minus)", None),
        ("s = Shape(x) y = Size(s)", [4]),
        ("y = Size(x)", None),
        ("s = Shape<start = 1, end = 2>(x) r = Squeeze(s) y = Reshape(r, minus)", [3]),
    ],
)
def test_what_shapes_are_computed_from(body: str, expected: list[object] | None) -> None:
    assert of(body) == expected


def test_a_long_tensor_is_not_followed() -> None:
    many = ", ".join(["s"] * 22)
    assert elements(f"(float[N,1,1] x) => (int64[66] y) {{ s = Shape(x) y = Concat<axis = 0>({many}) }}") is None
