"""Functions of one element, computed in half as ONNX Runtime's CUDA provider does (benchmarks.cuda_operators)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.truehalf.emulation.emulation import parsed
from tests.truehalf.emulation.splitting import pessimistic
from truehalf.emulation.half_nodes import NOT_SPLIT
from truehalf.emulation.pessimistic import split_sums
from truehalf.emulation.sessions import EmulatedSession

EVERY = np.arange(2**16, dtype=np.uint32).astype(np.uint16).view(np.float16)
ONE = np.float16(1)


def softplus(x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, x + np.log(np.exp(-x) + ONE), np.log(np.exp(x) + ONE))


def elu(x: np.ndarray, alpha: float = 1.0) -> np.ndarray:
    return np.where(x > 0, x, np.float16(alpha) * (np.exp(x) - ONE))


def selu(x: np.ndarray) -> np.ndarray:
    gamma, alpha = np.float16(1.0507009873554805), np.float16(1.6732632423543772)
    return np.where(x > 0, gamma * x, gamma * alpha * (np.exp(x) - ONE))


# operator with its attributes: what it is in numpy.float16, which rounds after every operation
FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "Softplus": softplus,
    "Mish": lambda x: x * np.tanh(softplus(x)),
    "Elu": elu,
    "Elu<alpha = 0.3>": lambda x: elu(x, 0.3),
    "Selu": selu,
}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_each_step_is_rounded(function: str) -> None:
    model = parsed(f"g (float16[N] x) => (float16[N] y) {{ y = {function}(x) }}", opset=22)
    assert split_sums(model).meta[NOT_SPLIT] == {}
    with np.errstate(all="ignore"):
        expected = FUNCTIONS[function](EVERY)
    found = pessimistic(model, x=EVERY)["y"]
    known = np.isfinite(expected)
    assert np.array_equal(np.isnan(found), np.isnan(expected))
    assert np.array_equal(found[~known & ~np.isnan(expected)], expected[~known & ~np.isnan(expected)])
    assert (found == expected)[known].mean() > 0.999  # Exp and Log differ in a last bit, rarely
    np.testing.assert_allclose(found[known], expected[known], rtol=2e-3, atol=1e-3)


@pytest.mark.parametrize("operator", FUNCTIONS)
def test_no_shape_is_needed(operator: str) -> None:
    text = f"{{ a = Reshape(x, s)  b = {operator}(a)  y = Flatten(b) }}"
    model = parsed(f"g (float16[N] x, int64[k] s) => (float16[A, B] y) {text}", opset=22)
    assert split_sums(model).meta[NOT_SPLIT] == {}


def test_a_factor_beyond_float16_leaves_what_is_above_zero() -> None:
    model = parsed("g (float16[3] x) => (float16[3] y) { y = Elu<alpha = 100000.0>(x) }", opset=22)
    assert pessimistic(model, x=np.float16([1, 2, -1]))["y"].tolist() == [1, 2, -np.inf]


def test_the_logarithm_of_a_small_one_is_infinite_where_it_is_on_such_kernels() -> None:
    model = parsed("g (float16[2] x) => (float16[2] z) { y = Softplus(x)  z = Log(y) }", opset=22)
    x = np.float16([-9, 3])
    assert np.isneginf(pessimistic(model, x=x)["z"]).tolist() == [True, False]
    assert np.isfinite(EmulatedSession(model).run({"x": x})["z"]).all()
