"""Normalisations made explicit: the same function, but for rounding; squares that overflow."""

from __future__ import annotations

import numpy as np
import pytest

from tests.truehalf.emulation.emulation import parsed, run
from tests.truehalf.emulation.splitting import Case, assert_same_but_for_rounding, feeds_of, pessimistic
from truehalf.emulation.sessions import EmulatedSession

# One node each, with sums over more than a block.
SAME_FUNCTION: dict[str, Case] = {
    "LayerNormalization": (
        "float16[3,300] x, float16[300] s, float16[300] b",
        "float16[3,300] y",
        "{ y = LayerNormalization(x, s, b) }",
        17,
    ),
    "LayerNormalization, no bias, two axes": (
        "float16[2,3,20,15] x, float16[20,15] s",
        "float16[2,3,20,15] y",
        "{ y = LayerNormalization<axis = 2>(x, s) }",
        17,
    ),
    "RMSNormalization": (
        "float16[3,300] x, float16[300] s",
        "float16[3,300] y",
        "{ y = RMSNormalization(x, s) }",
        23,
    ),
    "InstanceNormalization": (
        "float16[2,3,20,15] x, float16[3] s, float16[3] b",
        "float16[2,3,20,15] y",
        "{ y = InstanceNormalization(x, s, b) }",
        17,
    ),
    "GroupNormalization": (
        "float16[2,6,10,10] x, float16[6] s, float16[6] b",
        "float16[2,6,10,10] y",
        "{ y = GroupNormalization<num_groups = 2>(x, s, b) }",
        21,
    ),
}


@pytest.mark.parametrize("case", SAME_FUNCTION)
def test_the_function_stays_but_for_rounding(case: str) -> None:
    assert_same_but_for_rounding(SAME_FUNCTION[case])


def test_squares_in_a_normalisation_overflow() -> None:
    model = parsed(
        """g (float16[1,256] x, float16[256] s, float16[256] b) => (float16[1,256] y)
        { y = LayerNormalization(x, s, b) }"""
    )
    x = np.tile(np.float16([300, -300]), 128)[None]  # 300^2 is beyond 65504, so 1 / deviation is 0
    s, b = np.ones(256, np.float16), np.zeros(256, np.float16)
    np.testing.assert_array_equal(run(model, x=x, s=s, b=b)["y"], np.sign(x))
    np.testing.assert_array_equal(pessimistic(model, x=x, s=s, b=b)["y"], np.zeros_like(x))


def test_mean_and_deviation_of_a_layer_normalization() -> None:
    model = parsed(
        """g (float16[3,300] x, float16[300] s) => (float16[3,300] y, float[3,1] m, float[3,1] d)
        { y, m, d = LayerNormalization(x, s) }"""
    )
    feeds = feeds_of(model)
    session = EmulatedSession(model, pessimistic=True)
    result, wide = session.run(feeds), feeds["x"].astype(np.float64)
    np.testing.assert_allclose(result["m"], wide.mean(-1, keepdims=True), atol=2e-4)
    np.testing.assert_allclose(result["d"], 1 / wide.std(-1, keepdims=True), rtol=2e-3)
    np.testing.assert_array_equal(result["m"], result["m"].astype(np.float16))
