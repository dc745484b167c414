"""Sums, reductions, pools and Softmax made explicit: the same function, but for rounding; sums that overflow."""

from __future__ import annotations

import numpy as np
import pytest

from tests.truehalf.emulation.emulation import parsed, run
from tests.truehalf.emulation.splitting import Case, assert_same_but_for_rounding, pessimistic

# One node each, with sums over more than a block.
SAME_FUNCTION: dict[str, Case] = {
    "ReduceSum": ("float16[3,300] x", "float16[3,1] y", "<int64[1] a = {1}> { y = ReduceSum(x, a) }", 17),
    "ReduceMean": ("float16[3,300,7] x", "float16[3] y", "{ y = ReduceMean<axes = [1, -1], keepdims = 0>(x) }", 17),
    "ReduceMean, all": ("float16[3,300,7] x", "float16 y", "{ y = ReduceMean<keepdims = 0>(x) }", 18),
    "ReduceL2": ("float16[3,300] x", "float16[3,1] y", "<int64[1] a = {-1}> { y = ReduceL2(x, a) }", 18),
    "ReduceSumSquare": ("float16[3,300] x", "float16[3,1] y", "{ y = ReduceSumSquare<axes = [1]>(x) }", 17),
    "GlobalAveragePool": ("float16[2,3,20,15] x", "float16[2,3,1,1] y", "{ y = GlobalAveragePool(x) }", 17),
    "AveragePool": (
        "float16[2,3,9,9] x",
        "float16[2,3,5,5] y",
        "{ y = AveragePool<kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]>(x) }",
        17,
    ),
    "AveragePool, padding counts": (
        "float16[2,3,9,9] x",
        "float16[2,3,9,9] y",
        '{ y = AveragePool<kernel_shape = [3, 3], auto_pad = "SAME_UPPER", count_include_pad = 1>(x) }',
        17,
    ),
    "CumSum": ("float16[3,300] x", "float16[3,300] y", "<int64 a = {1}> { y = CumSum(x, a) }", 17),
    "CumSum, back": (
        "float16[3,300] x",
        "float16[3,300] y",
        "<int64 a = {-1}> { y = CumSum<exclusive = 1, reverse = 1>(x, a) }",
        18,
    ),
    "Softmax": ("float16[3,300] x", "float16[3,300] y", "{ y = Softmax(x) }", 17),
    "Softmax, axis 0": ("float16[300,3] x", "float16[300,3] y", "{ y = Softmax<axis = 0>(x) }", 18),
    "LogSoftmax": ("float16[3,300] x", "float16[3,300] y", "{ y = LogSoftmax(x) }", 17),
}
# Terms of both signs cancel, and a running sum rounds 299 times, one after the other.
PARTS = {"CumSum": 2**-7, "CumSum, back": 2**-7, "ReduceSum": 2**-7, "ReduceMean, all": 2**-6}


@pytest.mark.parametrize("case", SAME_FUNCTION)
def test_the_function_stays_but_for_rounding(case: str) -> None:
    assert_same_but_for_rounding(SAME_FUNCTION[case], PARTS.get(case, 2**-8))


def test_a_running_sum_of_ones_stops_at_2048() -> None:
    model = parsed("g (float16[3000] x) => (float16[3000] y) <int64 a = {0}> { y = CumSum(x, a) }")
    ones = np.ones(3000, np.float16)
    assert pessimistic(model, x=ones)["y"][-1] == run(model, x=ones)["y"][-1] == 2048


def test_sums_overflow_where_means_do_not() -> None:
    model = parsed("g (float16[1,512] x) => (float16[1,1] y) { y = ReduceMean<axes = [1]>(x) }")
    x = np.full((1, 512), 200, np.float16)
    assert run(model, x=x)["y"].item() == 200
    assert pessimistic(model, x=x)["y"].item() == np.inf


@pytest.mark.parametrize("terms", [300, 3000, 9000])
def test_roundings_move_a_sum_without_negative_terms_by_no_more_than_stated(terms: int) -> None:
    model = parsed(f"g (float16[50,{terms}] x) => (float16[50,1] y) <int64[1] a = {{1}}> {{ y = ReduceSum(x, a) }}")
    x = np.random.default_rng(terms).exponential(50000 / terms, (50, terms)).astype(np.float16)
    exact = x.astype(np.float64).sum(1, keepdims=True)
    assert np.abs(pessimistic(model, x=x)["y"] - exact).max() <= terms / 8 + 32


def test_a_count_that_half_does_not_hold_divides_exactly() -> None:
    model = parsed("g (float16[1,70001] x) => (float16[1,1] y) { y = ReduceMean<axes = [1]>(x) }")
    x = np.zeros((1, 70001), np.float16)
    x[0, :2] = 7000.0
    assert pessimistic(model, x=x)["y"].item() == np.float16(14000 / 70001)


def test_sums_of_many_tensors_round_after_each() -> None:
    """2048 + 1 is 2048 in FP16: a sum rounded once gives 2050. 60000 + 6000 is Inf."""
    model = parsed(
        """g (float16[2] a, float16 b, float16[1,2] c, float16[2] m) => (float16[1,2] y, float16[1,2] z, float16[2] n)
        { y = Sum(a, b, c)  z = Mean(a, b, c, m)  n = Sum(m) }"""
    )
    half = np.float16
    feeds = {"a": half([2048, 60000]), "b": np.array(1, half), "c": half([[1, 6000]]), "m": half([0, -60000])}
    assert run(model, **feeds)["y"].tolist() == [[2050, np.inf]]
    assert run(model, **feeds)["z"].tolist() == [[512.5, 1500]]
    result = pessimistic(model, **feeds)
    assert result["y"].tolist() == [[2048, np.inf]] and result["z"].tolist() == [[512, np.inf]]
    assert result["n"].tolist() == [0, -60000]
