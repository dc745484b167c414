"""Sums that round after each term, as what accumulates in float16 does."""

from __future__ import annotations

import numpy as np
import pytest

from tests.truehalf.conversion.rules.rounding.losses import TOLERANCE, losses


@pytest.mark.parametrize(
    ("shape", "node"),
    [
        ("2,3000", "CumSum(x, last)"),
        ("3000,2", "CumSum<exclusive = 1>(x, first)"),
        ("3000,2", "CumSum<reverse = 1>(x, first)"),
        ("2,2,3000", "CumSum<exclusive = 1, reverse = 1>(x, last)"),
        ("2,3000,2", "CumSum(x, middle)"),
    ],
)
def test_a_long_cumulative_sum_stays_float32(shape: str, node: str) -> None:
    text = f"""g (float[{shape}] x) => (float[{shape}] y)
        <int64 first = {{0}}, int64 middle = {{1}}, int64 last = {{-1}}> {{ y = {node} }}"""
    x = np.random.default_rng(0).uniform(0, 0.2, tuple(map(int, shape.split(",")))).astype(np.float32)
    found = losses(text, {"x": x}, pessimistic=True)
    assert found.before > TOLERANCE
    assert found.after <= TOLERANCE
    assert found.kept == {"CumSum_y": "inner"}


@pytest.mark.parametrize("seed", range(3))
def test_a_cumulative_sum_between_products(seed: int) -> None:
    random = np.random.default_rng(seed)
    length = int(random.integers(2000, 4000))
    text = f"""g (float[{length},8] x, float[8,4] w, float[4,3] v) => (float[{length},3] y) <int64 first = {{0}}> {{
        p = MatMul(x, w) a = Abs(p) c = CumSum(a, first) y = MatMul(c, v) }}"""
    weights = {"w": random.normal(size=(8, 4)) / 30, "v": random.normal(size=(4, 3)) / 30}
    x = random.normal(size=(length, 8)).astype(np.float32)
    arrays = {name: array.astype(np.float32) for name, array in weights.items()}
    found = losses(text, {"x": x}, arrays, pessimistic=True)
    assert found.before > TOLERANCE
    assert found.after <= TOLERANCE
    assert found.kept == {"CumSum_c": "inner"}


def test_whole_numbers_and_short_sums_stay_float16() -> None:
    text = "g (float[2,{n}] x) => (float[2,{n}] y) <int64 last = {{1}}> {{ y = CumSum(x, last) }}"
    for x in (np.ones((2, 2000)), np.random.default_rng(0).uniform(0, 1, (2, 30))):
        found = losses(text.format(n=x.shape[1]), {"x": x.astype(np.float32)}, pessimistic=True)
        assert not found.kept
