"""Sums that round after each term, as what accumulates in float16 does."""

from __future__ import annotations

import numpy as np
import pytest

from tests.truehalf.calibration.small_graphs import parsed
from tests.truehalf.conversion.rules.rounding.losses import TOLERANCE, losses
from truehalf.calibration.calibrate import calibrate
from truehalf.ir.normalize import PREPARE


@pytest.mark.parametrize(
    ("shape", "node"),
    [
        ("2,3000", "CumSum(x, last)"),
        ("3000,2", "CumSum<exclusive = 1>(x, first)"),
        ("3000,2", "CumSum<reverse = 1>(x, first)"),
        ("2,2,3000", "CumSum<exclusive = 1, reverse = 1>(x, last)"),
        ("2,3000,2", "CumSum(x, middle)"),
        ("2,3000", "CumSum(x, row)"),  # one element, which ONNX Runtime takes for a scalar
    ],
)
def test_a_long_cumulative_sum_stays_float32(shape: str, node: str) -> None:
    text = f"""g (float[{shape}] x) => (float[{shape}] y)
        <int64 first = {{0}}, int64 middle = {{1}}, int64 last = {{-1}}, int64[1] row = {{1}}> {{ y = {node} }}"""
    x = np.random.default_rng(0).uniform(0, 0.2, tuple(map(int, shape.split(",")))).astype(np.float32)
    found = losses(text, {"x": x}, pessimistic=True)
    assert found.before > TOLERANCE
    assert found.after <= TOLERANCE
    assert found.kept == {"CumSum_y": "inner"}


@pytest.mark.parametrize("opset", [11, 13, 20])
def test_a_cumulative_sum_is_measured_in_each_opset(opset: int) -> None:
    model = parsed("g (float[2,3000] x) => (float[2,3000] y) <int64 last = {1}> { y = CumSum(x, last) }", opset)
    PREPARE(model)
    x = np.random.default_rng(0).uniform(0, 0.2, (2, 3000)).astype(np.float32)
    error = calibrate(model, [{"x": x}])["rounding"]["CumSum_y"]["error"]
    half = np.cumsum(x.astype(np.float16), axis=1, dtype=np.float16).astype(np.float32)
    exact = np.cumsum(x, axis=1, dtype=np.float64)
    assert error == pytest.approx(np.abs(half - exact).max() / exact.max(), rel=1e-4)


OVERFLOWS = {
    "LpNormalization": ("y = LpNormalization<axis = 1>(x)", 60.0),
    "LpNormalization, p = 1": ("y = LpNormalization<axis = 2, p = 1>(x)", 10000.0),
    "GlobalLpPool": ("y = GlobalLpPool(x)", 60.0),
    "LRN": ("y = LRN<size = 9, bias = 1.0>(x)", 150.0),
    "LRN, of few channels": ("y = LRN<size = 3, bias = 1.0>(x)", 200.0),
}


@pytest.mark.parametrize("name", OVERFLOWS)
def test_sums_inside_that_overflow_stay_float32(name: str) -> None:
    node, size = OVERFLOWS[name]
    text = f"g (float[2,16,10,10] x) => (float[2,A,B,C] y) {{ {node} }}"
    x = np.random.default_rng(0).uniform(0.9, 1, (2, 16, 10, 10)).astype(np.float32)
    assert list(losses(text, {"x": x * size}).kept.values()) == ["inner"]
    assert not losses(text, {"x": x * (size / 30)}).kept


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
