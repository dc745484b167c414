"""Where as arithmetic, and where that would not be equal."""

from __future__ import annotations

import numpy as np
import pytest

from tests.messages import expect
from tests.truehalf.repairs.repairing import assert_equal, ops, parsed, repaired, run, uniform
from truehalf.repairs import PASSES

FLOATS = "net (bool[n, 3] c, float[n, 3] a, float[n, 3] b) => (float[n, 3] y)"
UNBOUNDED = (65504, "0 * inf", "0 * NaN", "max(x, 0)", "max(x, 1e-6)")  # in the reason, of a branch without bounds


def feeds() -> list[dict[str, np.ndarray]]:
    return [{"c": uniform(n, 3) > 0, "a": 100 * uniform(n, 3), "b": uniform(n, 3)} for n in (1, 4)]


@pytest.mark.parametrize(
    "body",
    [
        "{ p = Sigmoid (a)  q = Tanh (b)  y = Where (c, p, q) }",
        "<float low = {-2.0}, float high = {3.0}> { p = Clip (a, low, high)  q = Mul (p, p)  y = Where (c, p, q) }",
        "<float[3] k = {1.0, -65504.0, 0.0}> { p = Erf (b)  s = Abs (p)  q = Sqrt (s)  y = Where (c, k, q) }",
        "<int64[2] turn = {3, -1}> { p = Sin (a)  q = Cos (b)  m = Min (p, q)  n = Neg (m)  y = Where (c, n, p) }",
    ],
)
def test_bounded_branches(body: str) -> None:
    before = parsed(f"{FLOATS} {body}")
    after, report = repaired(before, "where_arithmetic")
    assert "Where" not in ops(after)
    assert report.counts == {"where_arithmetic": 1}
    assert_equal(before, after, feeds())


def test_integers_and_broadcasting() -> None:
    before = parsed(
        "net (bool[n, 1] c, int64[1, 3] a, int64[n, 3] b) => (int64[n, 3] y) { y = Where (c, a, b) }",
    )
    after, _ = repaired(before, "where_arithmetic")
    assert ops(after) == ["Cast", "Sub", "Mul", "Mul", "Add"]
    extremes = np.array([[-(2**63), 2**63 - 1, 0]])
    feed = {"c": np.array([[True], [False]]), "a": extremes, "b": np.concatenate([extremes[:, ::-1]] * 2)}
    assert_equal(before, after, [feed])


@pytest.mark.parametrize(
    ("body", "facts"),
    [
        ("{ y = Where (c, a, b) }", ["'a'", *UNBOUNDED]),
        ("{ p = Sigmoid (a)  e = Exp (b)  y = Where (c, p, e) }", ["'e'", *UNBOUNDED]),
        ("{ p = Sigmoid (a)  s = Softmax (b)  y = Where (c, p, s) }", ["'s'", *UNBOUNDED]),
        ("<float big = {3.4e38}> { p = Sigmoid (a)  y = Where (c, p, big) }", ["'big'", "3.4e+38 > 65504"]),
        (
            "<float k = {300.0}> { p = Sigmoid (a)  q = Mul (p, k)  r = Mul (q, k)  y = Where (c, r, p) }",
            ["'r'", "9e+04 > 65504"],
        ),
        (
            "{ p = Sigmoid (a)  q = Sigmoid (b)  i = IsNaN (p)  d = And (c, i)  y = Where (d, q, p) }",
            ["'/net/block.0/IsNaN_i'", "NaN", "Inf"],
        ),
        (
            "{ p = Sigmoid (a)  q = Sigmoid (b)  i = Equal (p, p)  y = Where (i, p, q) }",
            ["'/net/block.0/Equal_i'", "NaN", "Inf"],
        ),
    ],
)
def test_refused(body: str, facts: list[str]) -> None:
    before = parsed(f"{FLOATS} {body}")
    after, report = repaired(before, "where_arithmetic")
    assert "Where" in ops(after)
    assert report.counts == {"where_arithmetic": 0}
    expect(report.refused[0]["reason"], None, *facts)


GUARDED = "net (float[n] x, float[n] u) => (float[n] y) <float zero = {0.0}, float nine = {9.0}, float big = {100.0}>"


@pytest.mark.parametrize(
    "body",
    [
        "{ c = Greater (x, zero)  l = Log (x)  s = Sigmoid (l)  y = Where (c, s, zero) }",
        "{ c = Equal (x, zero)  q = Div (u, x)  s = Atan (q)  y = Where (c, zero, s) }",
        "{ c = Less (x, zero)  r = Sqrt (x)  s = Clip (r, zero, nine)  y = Where (c, zero, s) }",
        "{ c = Equal (x, zero)  q = Div (x, x)  s = Clip (q, zero, nine)  y = Where (c, zero, s) }",
        "{ c = Less (x, big)  e = Exp (x)  s = Sin (e)  y = Where (c, s, zero) }",
    ],
)
def test_a_branch_that_the_where_guards_is_refused(body: str) -> None:
    before = parsed(f"{GUARDED} {body}")
    after, report = repaired(before, *PASSES)
    assert report.counts["where_arithmetic"] == 0
    expect(report.refused[0]["reason"], None, "'s'", *UNBOUNDED)
    x = np.array([-1, 0, 1, 2, 1000], np.float32)
    assert_equal(before, after, [{"x": x, "u": x}])
    for optimized in (False, True):
        assert all(np.isfinite(output).all() for output in run(after, {"x": x, "u": x}, optimized))


def test_constants_of_inf_are_refused() -> None:
    before = parsed(f"{FLOATS} <float k = {{1.0}}> {{ p = Sigmoid (a)  y = Where (c, p, k) }}")
    before.graph.initializer[0].float_data[:] = [-np.inf]
    _, report = repaired(before, "where_arithmetic")
    expect(report.refused[0]["reason"], None, "'k'", "Inf", "NaN", "0 * inf")
    assert "65504" not in report.refused[0]["reason"]


def test_conditions_on_sizes_alone_stay() -> None:
    before = parsed(
        """net (float[n, 3] x) => (int64[2] y)
        <int64 four = {4}, int64[2] a = {1, 2}, int64[2] b = {3, 4}>
        { s = Shape (x)  c = Greater (s, four)  y = Where (c, a, b) }"""
    )
    after, report = repaired(before, "where_arithmetic")
    assert ("Where" in ops(after), report.refused) == (True, [])
