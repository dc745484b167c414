"""Emulated operators against numpy.float16, to the bit where FP16 defines it, else in units of the last place."""

from __future__ import annotations

import numpy as np
import pytest

from tests.truehalf.emulation.emulation import HALF_BITS, assert_same_bits, parsed, run, ulps
from truehalf.emulation.emulate import emulate
from truehalf.runtime.ort import Session

BINARY = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide, "Max": np.maximum, "Min": np.minimum}
UNARY = {
    "Sqrt": np.sqrt,
    "Reciprocal": lambda x: np.float16(1) / x,
    "Neg": np.negative,
    "Abs": np.abs,
    "Floor": np.floor,
}


@pytest.mark.parametrize("op_type", BINARY)
def test_binary_operators_give_the_bits_of_numpy(op_type: str) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.permutation(HALF_BITS), rng.permutation(HALF_BITS)
    subnormal = rng.integers(0, 2**10, 2**16, dtype=np.uint16).view(np.float16)
    a, b = np.concatenate([a, a, subnormal]), np.concatenate([b, np.roll(a, 1), subnormal[::-1]])
    if op_type in ("Max", "Min"):  # which zero, and which NaN, these return is nobody's promise
        keep = ~(np.isnan(a) | np.isnan(b) | ((a == 0) & (b == 0)))
        a, b = a[keep], b[keep]
    with np.errstate(all="ignore"):
        expected = BINARY[op_type](a, b)
    model = parsed(f"g (float16[N] a, float16[N] b) => (float16[N] y) {{ y = {op_type}(a, b) }}")
    assert_same_bits(run(model, a=a, b=b)["y"], expected)


@pytest.mark.parametrize("op_type", UNARY)
def test_unary_operators_give_the_bits_of_numpy(op_type: str) -> None:
    with np.errstate(all="ignore"):
        expected = UNARY[op_type](HALF_BITS)
    model = parsed(f"g (float16[N] x) => (float16[N] y) {{ y = {op_type}(x) }}")
    assert_same_bits(run(model, x=HALF_BITS)["y"], expected)


@pytest.mark.parametrize(("op_type", "exact"), [("Exp", np.exp), ("Log", np.log), ("Tanh", np.tanh), ("Erf", None)])
def test_functions_round_a_float32_result(op_type: str, exact: object) -> None:
    x = HALF_BITS[np.isfinite(HALF_BITS) & (HALF_BITS > 0)]
    if exact is None:
        from scipy.special import erf as exact
    with np.errstate(over="ignore"):
        expected = exact(x.astype(np.float64))
        overflow = np.isinf(expected.astype(np.float16))
    y = run(parsed(f"g (float16[N] x) => (float16[N] y) {{ y = {op_type}(x) }}"), x=x)["y"]
    np.testing.assert_array_equal(np.isinf(y), overflow)
    assert ulps(y[~overflow], expected[~overflow]) <= 0.51  # half a unit, and the error of a float32 function


def test_matmul_adds_up_in_float32() -> None:
    model = parsed("g (float16[M,K] a, float16[K,N] b) => (float16[M,N] y) { y = MatMul(a, b) }")
    ones = np.ones((1, 4096), np.float16)  # an FP16 sum of ones stays at 2048
    assert run(model, a=ones, b=ones.T)["y"].item() == 4096
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((8, 64)).astype(np.float16), rng.standard_normal((64, 16)).astype(np.float16)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    y = run(model, a=a, b=b)["y"]
    magnitude = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))  # bounds float32's own error
    assert np.all(np.abs(y - exact) <= 0.5 * np.spacing(np.abs(exact).astype(np.float16)) + magnitude * 2.0**-20)


def test_conv_adds_up_in_float32() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 3, 6, 6)).astype(np.float16), rng.standard_normal((4, 3, 3, 3)).astype(np.float16)
    model = parsed("g (float16[1,3,6,6] x, float16[4,3,3,3] w) => (float16[1,4,4,4] y) { y = Conv(x, w) }")
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64)[0], (3, 3), axis=(1, 2))
    exact = np.einsum("cijhw,ochw->oij", windows, w.astype(np.float64))[None]
    y = run(model, x=x, w=w)["y"]
    assert np.all(np.abs(y - exact) <= 0.5 * np.spacing(np.abs(exact).astype(np.float16)) + 27 * 16 * 2.0**-22)


def test_softmax_and_layer_normalization_round_once() -> None:
    x = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float16) * np.float16(4)
    wide = x.astype(np.float64)
    y = run(parsed("g (float16[4,64] x) => (float16[4,64] y) { y = Softmax(x) }"), x=x)["y"]
    e = np.exp(wide - wide.max(-1, keepdims=True))
    assert ulps(y, e / e.sum(-1, keepdims=True)) <= 0.51
    model = parsed(
        """g (float16[4,64] x, float16[64] s, float16[64] b) => (float16[4,64] y)
        { y = LayerNormalization<epsilon = 0.00001>(x, s, b) }"""
    )
    y = run(model, x=x, s=np.ones(64, np.float16), b=np.zeros(64, np.float16))["y"]
    exact = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    assert np.all(np.abs(y - exact) <= 0.5 * np.spacing(np.abs(exact).astype(np.float16)) + 1e-6)


def test_every_intermediate_is_rounded() -> None:
    """2048 + 1 - 2048 is 0 in FP16 and 1 in FP32."""
    model = parsed(
        """g (float16[1] x) => (float16[1] y)
        <float16[1] one = {15360}> { a = Add(x, one)  y = Sub(a, x) }"""
    )
    assert run(model, x=np.array([2048], np.float16))["y"].item() == 0


def test_overflow_is_infinite() -> None:
    """100 * 1000 is Inf in FP16; Inf * 0.001 stays Inf, and Inf * 0 in the product with the unit matrix is NaN."""
    model = parsed(
        """g (float16[2,2] x) => (float16[2,2] y)
        <float16[1] k = {25552}, float16[1] q = {5145}, float16[2,2] unit = {15360, 0, 0, 15360}>
        { a = Mul(x, k)  b = Mul(a, q)  y = MatMul(b, unit) }"""
    )
    x = np.full((2, 2), 100, np.float16)
    np.testing.assert_allclose(Session(model).run({"x": x})["y"], 100.06, atol=0.01)  # what the CPU provider claims
    assert np.isnan(run(model, x=x)["y"]).all()


@pytest.mark.parametrize("level", ["ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL"])
def test_rounding_is_honoured_at_every_optimization_level(level: str) -> None:
    import onnxruntime as ort

    model = parsed(
        """g (float16[1,2,4,4] x) => (float16[1,2,4,4] y)
        <float16[2,2,1,1] w = {15360, 0, 0, 15360}, float16[1] big = {30720}, float16[1] small = {4096}>
        { c = Conv(x, w)  r = Relu(c)  a = Add(r, big)  s = Sub(a, big)  y = Mul(s, small) }"""
    )
    session = Session(emulate(model), graph_optimization_level=getattr(ort.GraphOptimizationLevel, level))
    x = np.full((1, 2, 4, 4), 3, np.float32)  # 32768 + 3 is 32768 in FP16
    assert not session.run({"x": x})["y"].any()
