"""Choosing between values, and arithmetic on booleans."""

from __future__ import annotations

import pytest

from tests.messages import expect
from tests.truehalf.patterns.linting import found, only

CONSTANTS = "<float zero = {0}, float pi = {3.1415927}, float two = {2}, int64[1] first = {0}, int64 three = {3}>"


def of(body: str, inputs: str = "float[N] x, float[N] w, bool[N] b, int64[1] n", opset: int = 17) -> object:
    return found(f"({inputs}) => (float[A] y) {CONSTANTS} {{ {body} }}", opset)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("c = Greater(x, zero) y = Where(c, x, w)", [("info", "where-condition")]),
        ("y = Where(b, x, w)", [("info", "where-condition")]),
        ("c = Greater(n, three) y = Where(c, x, w)", [("info", "where-condition")]),  # a shape-tensor input
        ("s = Shape(x) e = ConstantOfShape(s) c = Greater(e, zero) y = Where(c, x, w)", []),  # of a size
        ("c = Greater(two, zero) y = Where(c, x, w)", []),
    ],
)
def test_where(body: str, expected: object) -> None:
    assert of(body) == expected


@pytest.mark.parametrize("op", ["And", "Or", "Xor"])
def test_logic_on_data(op: str) -> None:
    assert of(f"c = Greater(x, zero) l = {op}(b, c) y = Cast<to = 1>(l)") == [("info", "bool-arithmetic")]


def test_not() -> None:
    assert of("l = Not(b) y = Cast<to = 1>(l)") == [("info", "bool-arithmetic")]


def test_logic_on_sizes_and_constants_is_no_finding() -> None:
    sizes = "s = Shape(x) c = Greater(s, three) d = Less(s, three) l = And(c, d) m = Not(l) y = Cast<to = 1>(m)"
    assert of(sizes) == []


@pytest.mark.parametrize(("op", "inputs"), [("BitwiseAnd", "k, k"), ("BitwiseNot", "k"), ("BitwiseXor", "k, k")])
def test_bitwise(op: str, inputs: str) -> None:
    text = of(f"z = {op}({inputs}) y = Cast<to = 1>(z)", "int64[N] k", opset=18)
    assert text == [("error", "bool-arithmetic")]  # and not unsupported-op, too


QUADRANTS = """
    d = Div(x, w) a = Atan(d) u = Add(a, SHIFT) v = Sub(a, SHIFT)
    c = Greater(x, zero) q = Where(c, u, v)
    l = Less(w, zero) y = Where(l, q, a)
"""


def test_atan2_is_one_finding() -> None:
    assert of(QUADRANTS.replace("SHIFT", "pi")) == [("warning", "atan2")]


def test_atan2_as_dynamo_writes_it_is_right_at_the_origin() -> None:
    guarded = QUADRANTS.replace("SHIFT", "pi").replace("y =", "z =") + "m = IsNaN(z) y = Where(m, zero, z)"
    assert of(guarded) == [("info", "atan2")]


def test_an_arc_tangent_with_another_shift_is_none() -> None:
    assert of(QUADRANTS.replace("SHIFT", "two")) == [("info", "where-condition")] * 2


def test_an_arc_tangent_alone_is_none() -> None:
    assert of("d = Div(x, w) a = Atan(d) y = Add(a, pi)") == []


def test_where_says_what_to_write_where_a_build_fails() -> None:
    finding = only("(bool[N] b, float[N] x) => (float[N] y) { y = Where(b, x, x) }")
    expect(finding.remedy, None, "c * x + (1 - c) * y")
