"""NonZero over a threshold."""

from __future__ import annotations

import numpy as np
import pytest

from tests.messages import expect
from tests.truehalf.repairs.repairing import assert_equal, ops, parsed, repaired, uniform


@pytest.mark.parametrize("body", ["m = Cast <to = 9> (set)  y = NonZero (m)", "y = NonZero (set)"])
def test_positions_that_a_topk_set_are_sorted_positions(body: str) -> None:
    before = parsed(
        f"""net (float[9] x) => (int64[1, 4] y)
        <int64[1] k = {{4}}, float[9] zeros = {{0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0}},
         float[4] ones = {{1.0, 1.0, 1.0, 1.0}}>
        {{ best, index = TopK (x, k)  set = ScatterElements <axis = 0> (zeros, index, ones)  {body} }}"""
    )
    after, report = repaired(before, "nonzero_topk")
    assert not {"NonZero", "ScatterElements"} & {*ops(after)}
    assert report.counts == {"nonzero_topk": 1}
    assert_equal(before, after, [{"x": uniform(9)}, {"x": np.zeros(9, np.float32)}, {"x": -uniform(9)}])


@pytest.mark.parametrize(
    ("number", "body"),
    [
        ("0.5", "m = Cast <to = 7> (set)  y = NonZero (m)"),
        ("256.0", "m = Cast <to = 2> (set)  b = Cast <to = 9> (m)  y = NonZero (b)"),
        ("1e-9", "m = Cast <to = 10> (set)  y = NonZero (m)"),
    ],
)
def test_a_mark_that_a_cast_makes_zero_is_none(number: str, body: str) -> None:
    before = parsed(
        f"""net (float[9] x) => (int64[1, n] y)
        <int64[1] k = {{2}}, float[9] zeros = {{0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0}},
         float[2] marks = {{{number}, {number}}}>
        {{ best, index = TopK (x, k)  set = ScatterElements <axis = 0> (zeros, index, marks)  {body} }}"""
    )
    after, report = repaired(before, "nonzero_topk")
    assert report.counts == {"nonzero_topk": 0}
    assert_equal(before, after, [{"x": uniform(9)}])


def test_marks_of_half_count_as_true() -> None:
    before = parsed(
        """net (float[4] x) => (int64[1, 2] y)
        <int64[1] k = {2}, float[4] zeros = {0.0, 0.0, 0.0, 0.0}, float[2] marks = {0.5, 0.5}>
        { best, index = TopK (x, k)  set = ScatterElements <axis = 0> (zeros, index, marks)
          b = Cast <to = 9> (set)  m = Cast <to = 7> (b)  y = NonZero (m) }"""
    )
    after, report = repaired(before, "nonzero_topk")
    assert report.counts == {"nonzero_topk": 1}
    assert_equal(before, after, [{"x": uniform(4)}])


def test_a_sum_over_the_rows_that_pass() -> None:
    before = parsed(
        """net (float[n, 4] x, float[n] score) => (float[4] y) <float limit = {0.5}, int64[1] zero = {0}>
        { c = Greater (score, limit)  nz = NonZero (c)  at = Transpose <perm = [1, 0]> (nz)  rows = GatherND (x, at)
          y = ReduceSum <keepdims = 0> (rows, zero) }"""
    )
    after, report = repaired(before, "nonzero_topk")
    assert "NonZero" not in ops(after)
    assert report.counts == {"nonzero_topk": 1}
    feeds = [{"x": uniform(n, 4), "score": uniform(n, low=low)} for n, low in ((1, 0.6), (8, 0.0), (5, -1.0))]
    feeds.append({"x": np.full((3, 4), np.inf, np.float32), "score": np.array([0.1, 0.5, np.nan], np.float32)})
    assert_equal(before, after, feeds, rtol=1e-6)  # the order of float32 sums


def test_refused_where_more_may_pass_than_any_k() -> None:
    before = parsed(
        """net (float[n, 4] x, float[n] score) => (int64[m] y, float[m, 4] z) <float limit = {0.5}, int64[1] zero = {0}>
        { c = Greater (score, limit)  nz = NonZero (c)  y = Squeeze (nz, zero)  z = Gather (x, y) }"""
    )
    after, report = repaired(before, "nonzero_topk")
    assert "NonZero" in ops(after)
    assert report.counts == {"nonzero_topk": 0}
    (refusal,) = report.refused
    assert (refusal["pass"], refusal["node"]) == ("nonzero_topk", "/net/block.0/NonZero_nz")
    expect(refusal["reason"], None, "scores.topk(k)", "threshold_topk", "truehalf.exporting.torch_ops")


def test_counts_and_masks_of_integers_are_not_its_business() -> None:
    before = parsed(
        """net (float[n] score, bool[n] mask) => (int64[2] y, int64[1, m] z) <float limit = {0.5}>
        { c = Greater (score, limit)  nz = NonZero (c)  y = Shape (nz)  z = NonZero (mask) }"""
    )
    _, report = repaired(before, "nonzero_topk")
    assert (report.counts, report.refused) == ({"nonzero_topk": 0}, [])


def test_a_sum_under_a_shorter_mask_is_refused() -> None:
    before = parsed(
        """net (float[3, 2] x, float[1] score) => (float[2] y) <float limit = {0.5}, int64[1] zero = {0}>
        { c = Greater (score, limit)  nz = NonZero (c)  at = Transpose <perm = [1, 0]> (nz)  rows = GatherND (x, at)
          y = ReduceSum <keepdims = 0> (rows, zero) }"""
    )
    after, report = repaired(before, "nonzero_topk")
    assert report.counts == {"nonzero_topk": 0}
    assert_equal(before, after, [{"x": uniform(3, 2), "score": np.array([0.7], np.float32)}])
