"""arange over a count."""

from __future__ import annotations

import numpy as np
import pytest

from tests.messages import expect
from tests.truehalf.repairs.repairing import assert_equal, ops, parsed, repaired, uniform

HEAD = """net (bool[n, m] mask, int64[n, m] numbers) => (TYPE[k] y)
<int64 zero = {0}, int64 one = {1}, int64[1] first = {0}, int64[2] both = {-1, 0}, float f0 = {0.0}, float f1 = {1.0}>
"""
COUNT = "{ i = Cast <to = 7> (mask)  s = ReduceSum <keepdims = 0> (i)  "


def feeds() -> list[dict[str, np.ndarray]]:
    masks = [np.zeros((2, 3), bool), np.ones((3, 3), bool), uniform(5, 7) > 0.3]
    return [{"mask": mask, "numbers": np.ones(mask.shape, np.int64)} for mask in masks]


@pytest.mark.parametrize(
    "body",
    [
        "{ i = Cast <to = 7> (mask)  s = ReduceSum <keepdims = 0> (i)  y = Range (zero, s, one) }",
        "{ i = Cast <to = 7> (mask)  s = ReduceSum <keepdims = 0> (i, both)  t = Cast <to = 7> (s)"
        "  y = Range (zero, t, one) }",
        "{ i = Cast <to = 7> (mask)  s = ReduceSum <keepdims = 0> (i)  t = Cast <to = 6> (s)  u = Identity (t)"
        "  v = Cast <to = 7> (u)  y = Range (zero, v, one) }",
        "{ i = Cast <to = 6> (mask)  s = ReduceSum <keepdims = 1> (i)  t = Squeeze (s)  u = Cast <to = 7> (t)"
        "  y = Range (zero, u, one) }",
    ],
)
def test_a_count_is_a_shape(body: str) -> None:
    before = parsed(HEAD.replace("TYPE", "int64") + body)
    after, report = repaired(before, "range_to_shape")
    assert ops(after) == ["NonZero", "Shape", "Gather", "Range"]
    assert report.counts == {"range_to_shape": 1}
    assert_equal(before, after, feeds())


def test_a_range_of_floats_keeps_its_type() -> None:
    before = parsed(
        HEAD.replace("TYPE", "float")
        + "{ i = Cast <to = 7> (mask)  s = ReduceSum <keepdims = 0> (i)  t = Cast <to = 1> (s)  y = Range (f0, t, f1) }"
    )
    after, _ = repaired(before, "range_to_shape")
    assert ops(after) == ["NonZero", "Shape", "Gather", "Cast", "Range"]
    assert_equal(before, after, feeds())


@pytest.mark.parametrize(
    "body",
    [
        "{ s = ReduceSum <keepdims = 0> (numbers)  y = Range (zero, s, one) }",
        "{ s = ReduceMax <keepdims = 0> (numbers)  y = Range (zero, s, one) }",
        "{ i = Cast <to = 7> (mask)  s = ReduceSum <keepdims = 0> (i, first)  t = ReduceMax <keepdims = 0> (s)"
        "  y = Range (zero, t, one) }",
        COUNT + "b = Cast <to = 9> (s)  t = Cast <to = 7> (b)  y = Range (zero, t, one) }",
        COUNT + "b = Cast <to = 2> (s)  t = Cast <to = 7> (b)  y = Range (zero, t, one) }",
        COUNT + "b = Cast <to = 3> (s)  t = Cast <to = 7> (b)  y = Range (zero, t, one) }",
        COUNT + "b = Cast <to = 10> (s)  t = Cast <to = 7> (b)  y = Range (zero, t, one) }",
        COUNT + "b = Cast <to = 1> (s)  t = Cast <to = 7> (b)  y = Range (zero, t, one) }",
        COUNT + "b = Cast <to = 11> (s)  c = Cast <to = 1> (b)  t = Cast <to = 7> (c)  y = Range (zero, t, one) }",
    ],
)
def test_refused(body: str) -> None:
    before = parsed(HEAD.replace("TYPE", "int64") + body)
    after, report = repaired(before, "range_to_shape")
    assert "NonZero" not in ops(after)
    if "Max" not in body:  # which has no value of an empty tensor
        wide = np.ones((17, 241), bool)  # 4097: not a number of float16, nor of a byte
        assert_equal(before, after, [*feeds(), {"mask": wide, "numbers": wide.astype(np.int64)}])
    (refusal,) = report.refused
    assert (refusal["pass"], refusal["node"]) == ("range_to_shape", "/net/block.0/Range_y")
    expect(refusal["reason"], None, "x.shape[0]", "mask.nonzero().shape[0]")


def test_limits_of_sizes_stay() -> None:
    before = parsed(
        HEAD.replace("TYPE", "int64") + "{ s = Shape (mask)  n = Gather (s, zero)  y = Range (zero, n, one) }"
    )
    after, report = repaired(before, "range_to_shape")
    assert (ops(after), report.refused) == (["Shape", "Gather", "Range"], [])
