"""Sums of other operators than Add and Sub that are far below their terms, and are the result."""

from __future__ import annotations

import numpy as np
import pytest

from tests.truehalf.conversion.rules.rounding.losses import TOLERANCE, Arrays, losses

RANDOM = np.random.default_rng(0)
BRIGHT = RANDOM.uniform(200, 201, (6, 8)).astype(np.float32)
IMAGE = RANDOM.normal(200, 0.3, (1, 1, 12, 12)).astype(np.float32)
NEAR = {"x": BRIGHT, "z": BRIGHT + RANDOM.normal(0, 0.1, (6, 8)).astype(np.float32)}
STEPS = np.eye(8, dtype=np.float32)[:, 1:] - np.eye(8, dtype=np.float32)[:, :-1]
LAPLACIAN = np.array([[[[0, 1, 0], [1, -4, 1], [0, 1, 0]]]], np.float32)

CASES: dict[str, tuple[str, Arrays, Arrays]] = {
    "Sum": ("g (float[6,8] x, float[6,8] z) => (float[6,8] y) { n = Neg(z) y = Sum(x, n) }", NEAR, {}),
    "ReduceSum": (
        """g (float[6,8] x, float[6,8] z) => (float[1,6,8] y) <int64[1] first = {0}> { n = Neg(z)
            a = Unsqueeze(x, first) b = Unsqueeze(n, first) c = Concat<axis = 0>(a, b) y = ReduceSum(c, first) }""",
        NEAR,
        {},
    ),
    "ReduceMean": (
        """g (float[6,8] x, float[6,8] z) => (float[6,8] y) <int64[3] s = {6, 2, 8}> { n = Neg(z)
            c = Concat<axis = 1>(x, n) r = Reshape(c, s) y = ReduceMean<axes = [1], keepdims = 0>(r) }""",
        NEAR,
        {},
    ),
    "MatMul, weights behind": (
        "g (float[6,8] x, float[8,7] w) => (float[6,7] y) { y = MatMul(x, w) }",
        {"x": BRIGHT},
        {"w": STEPS},
    ),
    "MatMul, weights in front": (
        "g (float[8,6] x, float[7,8] w) => (float[7,6] y) { y = MatMul(w, x) }",
        {"x": BRIGHT.T.copy()},
        {"w": STEPS.T.copy()},
    ),
    "Gemm": (
        "g (float[6,8] x, float[7,8] w) => (float[6,7] y) { y = Gemm<transB = 1, alpha = 3.0>(x, w) }",
        {"x": BRIGHT},
        {"w": STEPS.T.copy()},
    ),
    "Gemm and what it adds": (
        "g (float[6,8] x, float[8,8] w, float[6,8] z) => (float[6,8] y) { y = Gemm<alpha = -1.0>(x, w, z) }",
        NEAR,
        {"w": np.eye(8, dtype=np.float32)},
    ),
    "Einsum": (
        """g (float[2,6,8] x, float[7,8] w) => (float[2,7,6] y) { y = Einsum<equation = "bmk,nk->bnm">(x, w) }""",
        {"x": np.stack([BRIGHT, BRIGHT + 1])},
        {"w": STEPS.T.copy()},
    ),
    "Conv": (
        "g (float[1,1,12,12] x, float[1,1,3,3] w) => (float[1,1,10,10] y) { y = Conv(x, w) }",
        {"x": IMAGE},
        {"w": LAPLACIAN},
    ),
    "ConvTranspose": (
        """g (float[1,1,12,12] x, float[1,1,3,3] w) => (float[1,1,10,10] y) {
            y = ConvTranspose<pads = [2,2,2,2]>(x, w) }""",
        {"x": IMAGE},
        {"w": LAPLACIAN},
    ),
    "Mod": (
        "g (float[6,8] x, float z) => (float[6,8] y) { y = Mod<fmod = 1>(x, z) }",
        {"x": BRIGHT},
        {"z": np.array(1, np.float32)},
    ),
    "a product of two computed tensors": (
        """g (float[6,8] x, float[6,8] z) => (float[6,6] y) { n = Neg(z) a = Concat<axis = 1>(x, n)
            b = Concat<axis = 1>(z, x) c = Transpose<perm = [1, 0]>(b) m = MatMul(a, c) y = Mul(m, m) }""",
        {"x": np.full((6, 8), 3, np.float32) + BRIGHT / 1000, "z": np.full((6, 8), 3, np.float32) - BRIGHT / 1001},
        {},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_added_up_stays_float32(name: str) -> None:
    text, feed, weights = CASES[name]
    found = losses(text, feed, weights)
    assert found.before > TOLERANCE
    assert found.after <= TOLERANCE
    assert "cancellation" in found.kept.values()


@pytest.mark.parametrize("seed", range(4))
def test_contrasts_behind_a_layer(seed: int) -> None:
    """Differences between neighbours, by weights, of what a layer with a large bias writes."""
    random = np.random.default_rng(seed)
    width = int(random.integers(12, 40))
    product = random.choice(["MatMul(b, d)", "Gemm(b, d)"])
    contrast = np.eye(width, dtype=np.float32) - np.full((width, width), 1 / width, np.float32)
    text = f"""g (float[9,{width}] x, float[{width},{width}] w, float[{width}] c, float[{width},{width}] d)
        => (float[9,{width}] y) {{ h = MatMul(x, w) a = Add(h, c) b = Relu(a) k = {product} y = MatMul(k, w) }}"""
    weights = {
        "w": (random.normal(size=(width, width)) / width**0.5).astype(np.float32),
        "c": np.full(width, random.uniform(200, 400), np.float32),
        "d": contrast,
    }
    found = losses(text, {"x": random.normal(size=(9, width)).astype(np.float32)}, weights)
    assert found.before > TOLERANCE
    assert found.after <= TOLERANCE
    assert "MatMul_y" not in found.kept


@pytest.mark.parametrize("seed", range(4))
def test_wide_products_of_data_around_zero_stay_float16(seed: int) -> None:
    random = np.random.default_rng(seed)
    width = int(random.integers(64, 512))
    text = f"""g (float[8,{width}] x, float[{width},{width}] w) => (float[8,1] y) {{ h = MatMul(x, w) a = Relu(h)
        b = Gemm(a, w) s = ReduceMean<axes = [1]>(b) m = ReduceSum(b) y = Sum(s, m) }}"""
    weights = {"w": (random.normal(size=(width, width)) / width**0.5).astype(np.float32)}
    found = losses(text, {"x": random.normal(size=(8, width)).astype(np.float32)}, weights)
    assert not found.kept
    assert found.after <= TOLERANCE
