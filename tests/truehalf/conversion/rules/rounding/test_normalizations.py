"""Normalizations whose inside loses what their input holds, in the pessimistic evaluation: d * d, epsilon as FP16."""

from __future__ import annotations

import numpy as np
import pytest

from tests.truehalf.conversion.rules.rounding.losses import TOLERANCE, losses

CASES = {
    "LayerNormalization": ("LayerNormalization<epsilon = 0.000000000001>(x, s)", 17),
    "LayerNormalization, axis 2": ("LayerNormalization<axis = 2, epsilon = 0.000000000001>(x, t)", 17),
    "InstanceNormalization": ("InstanceNormalization<epsilon = 0.000000000001>(x, c, c)", 17),
    "GroupNormalization": ("GroupNormalization<epsilon = 0.000000000001, num_groups = 2>(x, c, c)", 21),
    "RMSNormalization": ("RMSNormalization<epsilon = 0.000000000001>(x, s)", 23),
    "LpNormalization": ("LpNormalization<axis = 3>(x)", 17),
}


def graph(node: str) -> str:
    ones = ", ".join(["1"] * 80)
    return f"""g (float[2,4,8,10] x) => (float[2,4,8,10] y) <float[10] s = {{{", ".join(["1"] * 10)}}},
        float[8,10] t = {{{ones}}}, float[4] c = {{1, 1, 1, 1}}> {{ y = {node} }}"""


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", CASES)
def test_small_rows_stay_float32(name: str, seed: int) -> None:
    node, opset = CASES[name]
    x = np.random.default_rng(seed).normal(size=(2, 4, 8, 10), scale=1e-4).astype(np.float32)
    found = losses(graph(node), {"x": x}, opset=opset, pessimistic=name != "LpNormalization")
    assert found.kept.keys() == {f"{node.partition('<')[0].partition('(')[0]}_y"}
    assert found.after <= TOLERANCE
    if name != "LpNormalization":  # whose inside the pessimistic evaluation does not round
        assert found.before > TOLERANCE


@pytest.mark.parametrize("name", CASES)
def test_rows_of_usual_size_stay_float16(name: str) -> None:
    node, opset = CASES[name]
    x = np.random.default_rng(0).normal(size=(2, 4, 8, 10)).astype(np.float32)
    assert not losses(graph(node), {"x": x}, opset=opset).kept
