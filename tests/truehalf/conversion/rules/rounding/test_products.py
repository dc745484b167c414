"""Sums of products with weights far below their terms, in front of a logarithm, as in quiet bins of a spectrum, a
divisor or a root.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.truehalf.conversion.rules.rounding.losses import TOLERANCE, Arrays, losses

FRAME, BINS, FRAMES = 64, 33, 8


def waves(bins: int = BINS, frame: int = FRAME) -> dict[str, np.ndarray]:
    """Cosines "c" and sines "s" under a window, float32 (frame, bins)."""
    angles = 2 * np.pi * np.outer(np.arange(frame), np.arange(bins)) / frame
    window = np.hanning(frame)[:, None]
    return {"c": (np.cos(angles) * window).astype(np.float32), "s": (np.sin(angles) * window).astype(np.float32)}


def kernels(bins: int = BINS, frame: int = FRAME) -> dict[str, np.ndarray]:
    """`waves` as the weights of a convolution, float32 (bins, 1, frame)."""
    return {name: np.ascontiguousarray(wave.T[:, None]) for name, wave in waves(bins, frame).items()}


def tone(random: np.random.Generator, samples: int = FRAME * FRAMES) -> np.ndarray:
    """One tone in faint noise, float32 (samples,)."""
    phase = 2 * np.pi * random.uniform(0.1, 0.4) * np.arange(samples) + random.uniform(0, 6)
    return (np.sin(phase) + random.normal(0, 1e-4, samples)).astype(np.float32)


def rows() -> np.ndarray:
    return tone(np.random.default_rng(0)).reshape(FRAMES, FRAME)


HEAD = f"(float[{FRAMES},{FRAME}] x, float[{FRAME},{BINS}] c, float[{FRAME},{BINS}] s) => (float[{FRAMES},{BINS}] y)"
LINE = f"(float[1,1,{FRAME * FRAMES}] x, float[{BINS},1,{FRAME}] c, float[{BINS},1,{FRAME}] s)"
POWER = "a = Mul(p, p) b = Mul(q, q) d = Add(a, b)"

CASES: dict[str, tuple[str, Arrays, Arrays]] = {
    "amplitudes, MatMul": (
        f"""g {HEAD} <float e = {{0.01}}> {{ p = MatMul(x, c) q = MatMul(x, s) {POWER} r = Sqrt(d) f = Add(r, e)
            y = Log(f) }}""",
        {"x": rows()},
        waves(),
    ),
    "powers, Gemm": (
        f"""g {HEAD} <float e = {{0.0005}}> {{ p = Gemm(x, c) q = Gemm(x, s) {POWER} f = Max(d, e) y = Log(f) }}""",
        {"x": rows()},
        waves(),
    ),
    "bounded decibels of amplitudes, Conv": (
        f"""g {LINE} => (float[1,{BINS},{FRAMES}] y) <float e = {{0.0000001}}, float l = {{0.001}}, float h = {{9}},
            float k = {{20}}> {{ p = Conv<strides = [{FRAME}]>(x, c) q = Conv<strides = [{FRAME}]>(x, s)
            {POWER} f = Add(d, e) r = Sqrt(f) t = Clip(r, l) u = Div(t, h) v = Mul(u, k) y = Log(v) }}""",
        {"x": tone(np.random.default_rng(0))[None, None]},
        kernels(),
    ),
    "powers, Conv": (
        f"""g {LINE} => (float[1,{BINS},{FRAMES}] y) <float e = {{0.0001}}> {{
            p = Conv<strides = [{FRAME}]>(x, c) q = Conv<strides = [{FRAME}]>(x, s)
            {POWER} f = Add(d, e) y = Log(f) }}""",
        {"x": tone(np.random.default_rng(0))[None, None]},
        kernels(),
    ),
    "absolute values, Einsum": (
        f"""g (float[2,4,{FRAME}] x, float[{FRAME},{BINS}] c) => (float[2,4,{BINS}] y) <float e = {{0.001}}> {{
            p = Einsum<equation = "bnk,km->bnm">(x, c) a = Abs(p) f = Max(a, e) y = Log(f) }}""",
        {"x": rows().reshape(2, 4, FRAME)},
        {"c": waves()["c"]},
    ),
    "a reduced logarithm": (
        f"""g (float[1,1,{FRAME * FRAMES}] x, float[{BINS},1,{FRAME}] c) => (float[1,{BINS},{FRAMES // 2}] y)
            <int64[4] parts = {{1, {BINS}, {FRAMES // 2}, 2}}> {{ p = Conv<strides = [{FRAME}]>(x, c) a = Abs(p)
            r = Reshape(a, parts) y = ReduceLogSum<axes = [-1], keepdims = 0>(r) }}""",
        {"x": tone(np.random.default_rng(0))[None, None]},
        {"c": kernels()["c"]},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_products_in_front_of_a_logarithm_stay_float32(name: str) -> None:
    text, feed, weights = CASES[name]
    found = losses(text, feed, weights)
    assert found.before > TOLERANCE
    assert found.after <= TOLERANCE


@pytest.mark.parametrize("seed", range(6))
def test_spectra_that_are_put_together_of_many_parts(seed: int) -> None:
    """Parts of the axis of bins or of frames, by products of their own, behind more moves than nodes that compute."""
    random = np.random.default_rng(seed)
    parts, each = int(random.integers(6, 12)), int(random.integers(3, 7))
    product = random.choice(["MatMul(t{i}, w{i})", "Gemm(t{i}, w{i})"])
    ending = random.choice(["f = Max(r, e) y = Log(f)", "f = Max(r, e) l = Log(f) n = ReduceMin(l) y = Sub(l, n)"])
    nodes, weights = [], {}
    for i in range(parts):
        turned = f"m{i} = Transpose<perm = [1, 0]>(x) t{i} = Transpose<perm = [1, 0]>(m{i})"
        stacked = f"u{i} = Transpose<perm = [1, 0]>(p{i}) v{i} = Unsqueeze(u{i}, first) k{i} = Flatten<axis = 2>(v{i})"
        nodes.append(f"{turned} p{i} = {product.format(i=i)} {stacked}")
        weights[f"w{i}"] = random.permutation(waves()["c"].T)[:each].T.copy()
    inputs = ", ".join(f"float[{FRAME},{each}] w{i}" for i in range(parts))
    text = f"""g (float[{FRAMES},{FRAME}] x, {inputs}) => (float[{parts * each},{FRAMES}] y)
        <int64[1] first = {{0}}, float e = {{0.00001}}> {{ {" ".join(nodes)}
        a = Concat<axis = 0>({", ".join(f"k{i}" for i in range(parts))}) b = Mul(a, a) r = Sqrt(b) {ending} }}"""
    found = losses(text, {"x": tone(random).reshape(FRAMES, FRAME)}, weights)
    assert found.before > TOLERANCE
    assert found.after <= TOLERANCE
    assert any(name.startswith(("MatMul", "Gemm")) for name in found.kept)


PROJECTED = "g (float[16,64] x, float[64,32] w, float[16,32] z) => (float[16,32] y)"
DIVISORS = {
    "Reciprocal": "p = MatMul(x, w) a = Abs(p) f = Add(a, e) y = Reciprocal(f)",
    "Div": "p = Gemm(x, w) a = Mul(p, p) b = Sqrt(a) f = Max(b, e) y = Div(z, f)",
    "Pow": "p = MatMul(x, w) a = Mul(p, p) b = Max(a, e) f = Mul(b, b) y = Pow(f, h)",
    "Mul": "p = MatMul(x, w) a = Abs(p) f = Add(a, e) r = Reciprocal(f) y = Mul(z, r)",
    "Sqrt": "p = MatMul(x, w) a = Abs(p) f = Add(a, e) b = Sqrt(f) y = Div(z, b)",
}


@pytest.mark.parametrize("name", DIVISORS)
def test_the_products_in_front_of_a_divisor_stay_float32(name: str) -> None:
    random = np.random.default_rng(0)
    text = f"{PROJECTED} <float e = {{0.001}}, float h = {{-0.5}}> {{ {DIVISORS[name]} }}"
    feed = {"x": random.normal(size=(16, 64)), "z": random.uniform(1, 2, (16, 32))}
    weights = {"w": (random.normal(size=(64, 32)) / 8).astype(np.float32)}
    found = losses(text, {key: array.astype(np.float32) for key, array in feed.items()}, weights)
    assert found.before > TOLERANCE
    assert found.after <= TOLERANCE
    assert set(found.kept.values()) == {"cancellation"}


def test_products_in_front_of_a_norm_of_like_rows_stay_float16() -> None:
    text = f"""{PROJECTED} <float e = {{0.00001}}> {{ p = MatMul(x, w) a = Mul(p, p) m = ReduceMean<axes = [-1]>(a)
        f = Add(m, e) r = Sqrt(f) n = Div(p, r) y = Add(n, z) }}"""
    random = np.random.default_rng(0)
    feed = {"x": random.normal(size=(16, 64)).astype(np.float32), "z": np.ones((16, 32), np.float32)}
    found = losses(text, feed, {"w": (random.normal(size=(64, 32)) / 8).astype(np.float32)})
    assert not found.kept
    assert found.after <= TOLERANCE


def test_a_spectrum_without_quiet_bins_stays_float16() -> None:
    random = np.random.default_rng(0)
    text, _, _ = CASES["amplitudes, MatMul"]
    noise = random.normal(0, 1, (FRAMES, FRAME)).astype(np.float32)
    found = losses(text, {"x": noise}, waves())
    assert not found.kept
    assert found.after <= TOLERANCE
