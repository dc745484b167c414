"""Rotary tables."""

from __future__ import annotations

import pytest

from tests.messages import expect
from tests.truehalf.patterns.repairing import assert_equal, ops, parsed, repaired, uniform

WAVE = 3e-7  # numpy's sine and ONNX Runtime's, of angles up to 10


def test_a_table_with_if_and_tile_becomes_a_constant() -> None:
    before = parsed(
        """net (float[n, 16, 6] x) => (float[n, 16, 6] y)
        <float zero = {0.0}, float one = {1.0}, float[3] periods = {1.0, 2.0, 8.0}, int64[1] last = {-1},
         int64[2] twice = {1, 2}, int64 axis = {1}, int64 none = {0}>
        { s = Shape (x)  n = Gather (s, axis)  f = Cast <to = 1> (n)  r = Range (zero, f, one)  u = Unsqueeze (r, last)
          a = Div (u, periods)  c = Less (n, none)
          b = If (c) <then_branch = yes () => (p) { p = Neg (a) }, else_branch = no () => (q) { q = Identity (a) }>
          t = Tile (b, twice)  cos = Cos (t)  sin = Sin (t)  g = Mul (x, cos)  h = Mul (x, sin)  y = Add (g, h) }"""
    )
    after, report = repaired(before, "fold_constants")
    assert ops(after) == ["Mul", "Mul", "Add"]
    assert report.counts["fold_constants"] > 8
    assert_equal(before, after, [{"x": uniform(n, 16, 6)} for n in (1, 3)], rtol=WAVE)


@pytest.mark.parametrize("body", ["t = Tile (a, twice)  y = Cos (t)", "t = Cos (a)  y = Tile (t, twice)"])
def test_tile_of_what_varies_becomes_concat(body: str) -> None:
    before = parsed(f"net (float[n, 3] a) => (float[n, m] y) <int64[2] twice = {{1, 2}}> {{ {body} }}")
    after, report = repaired(before, "fold_constants")
    assert sorted(ops(after)) == ["Concat", "Cos"]
    assert report.counts == {"fold_constants": 1}
    assert_equal(before, after, [{"a": uniform(2, 3)}])


@pytest.mark.parametrize("repeats", ["2, 2", "1, 100"])
def test_refused(repeats: str) -> None:
    before = parsed(
        f"net (float[n, 3] a) => (float[k, m] y) <int64[2] r = {{{repeats}}}> {{ t = Tile (a, r)  y = Sin (t) }}"
    )
    after, report = repaired(before, "fold_constants")
    assert "Tile" in ops(after)
    expect(report.refused[0]["reason"], None, f"[{repeats}]", 2, 8)


def test_repeats_of_a_run_are_refused_and_tiles_elsewhere_stay() -> None:
    before = parsed(
        """net (float[n, 3] a, int64[2] r) => (float[k, m] y, float[o, p] z) <int64[2] twice = {1, 2}>
        { t = Tile (a, r)  y = Sin (t)  z = Tile (a, twice) }"""
    )
    after, report = repaired(before, "fold_constants")
    assert ops(after) == ["Tile", "Sin", "Tile"]
    (refusal,) = report.refused
    assert refusal["node"] == "/net/block.0/Tile_t"
    expect(refusal["reason"], None, "repeats")
    assert "[" not in refusal["reason"]  # there are no numbers to name
