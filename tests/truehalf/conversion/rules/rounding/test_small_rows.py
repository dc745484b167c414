"""Rows far smaller than the others that are normalized, sums of small squares, logarithms of exponentials."""

from __future__ import annotations

import numpy as np
import pytest

from tests.truehalf.conversion.rules.rounding.losses import TOLERANCE, losses


def rows(seed: int = 0, scale: float = 2e-7) -> np.ndarray:
    x = np.random.default_rng(seed).normal(size=(8, 64))
    x[3] *= scale
    return x.astype(np.float32)


LOGITS = np.random.default_rng(1).uniform(-30, -20, (8, 10)).astype(np.float32)

CASES = {
    "divided by their norm": (
        """g (float[8,64] x) => (float[8,64] y) <int64[1] last = {1}> {
            a = Mul(x, x) s = ReduceSum(a, last) n = Sqrt(s) y = Div(x, n) }""",
        rows(),
    ),
    "divided by ReduceL2": (
        "g (float[8,64] x) => (float[8,64] y) { n = ReduceL2<axes = [1]>(x) y = Div(x, n) }",
        rows(),
    ),
    "divided by their sum": (
        "g (float[8,64] x) => (float[8,64] y) { a = Abs(x) n = ReduceL1<axes = [-1]>(a) y = Div(a, n) }",
        rows(),
    ),
    "divided by their largest": (
        """g (float[8,64] x) => (float[64,8] y) { t = Transpose<perm = [1, 0]>(x) a = Abs(t)
            n = ReduceMax<axes = [0]>(a) y = Div(t, n) }""",
        rows(),
    ),
    "root mean squares": (
        """g (float[8,64] x) => (float[8,64] y) <float two = {2}> { a = Pow(x, two) m = ReduceMean<axes = [1]>(a)
            s = Sqrt(m) r = Reciprocal(s) y = Mul(x, r) }""",
        rows(),
    ),
    "LpNormalization": ("g (float[8,64] x) => (float[8,64] y) { y = LpNormalization<axis = 1>(x) }", rows()),
    "a root of a sum of squares": (
        """g (float[8,64] x) => (float[8] y) <int64[1] last = {1}, float h = {0.5}> {
            a = Mul(x, x) s = ReduceSum<keepdims = 0>(a, last) y = Pow(s, h) }""",
        rows() * np.float32(1e-4),
    ),
    "a root of a mean of squares over pixels": (
        "g (float[2,4,8,8] x) => (float[2,4,1,1] y) { a = Mul(x, x) m = GlobalAveragePool(a) y = Sqrt(m) }",
        (rows() * np.float32(1e-4)).reshape(2, 4, 8, 8),
    ),
    "a logarithm of an exponential": ("g (float[8,10] x) => (float[8,10] y) { e = Exp(x) y = Log(e) }", LOGITS),
    "a logarithm of a sum of exponentials": (
        """g (float[8,10] x) => (float[8,1] y) <int64[1] last = {1}> {
            e = Exp(x) s = ReduceSum(e, last) y = Log(s) }""",
        LOGITS,
    ),
    "a logarithm of a Softmax": (
        "g (float[8,10] x) => (float[8,10] y) { e = Softmax<axis = 1>(x) y = Log(e) }",
        LOGITS * np.float32(3),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_rows_that_underflow_stay_float32(name: str) -> None:
    text, x = CASES[name]
    found = losses(text, {"x": x})
    assert found.before > TOLERANCE
    assert found.after <= TOLERANCE
    assert "underflow" in found.kept.values()


@pytest.mark.parametrize("seed", range(4))
def test_small_rows_between_products(seed: int) -> None:
    random = np.random.default_rng(seed)
    norm = random.choice(
        [
            "a = Mul(h, h) s = ReduceSum(a, last) r = Sqrt(s) n = Div(h, r)",
            "n = LpNormalization<axis = -1>(h)",
            "n = LpNormalization<axis = -1, p = 1>(h)",
            "s = ReduceL2<axes = [-1]>(h) r = Reciprocal(s) n = Mul(h, r)",
        ]
    )
    text = f"""g (float[2,4,64] x, float[64,64] w) => (float[2,4,64] y) <int64[1] last = {{2}}> {{
        p = MatMul(x, w) h = Relu(p) {norm} y = MatMul(n, w) }}"""
    weights = {"w": (random.normal(size=(64, 64)) / 8).astype(np.float32)}
    found = losses(text, {"x": rows(seed).reshape(2, 4, 64)}, weights)
    assert found.before > TOLERANCE
    assert found.after <= TOLERANCE
    assert "MatMul_y" not in found.kept


def test_rows_of_like_size_stay_float16() -> None:
    for text, _ in (CASES["divided by their norm"], CASES["LpNormalization"]):
        found = losses(text, {"x": rows(scale=0.1)})
        assert not found.kept
