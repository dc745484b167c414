"""Sines and cosines of large arguments, and the products that make them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.truehalf.conversion.rules.judging import judge
from tests.truehalf.conversion.rules.rounding.losses import TOLERANCE, losses

FREQUENCIES = (100.0 ** -(np.arange(8) / 8)).astype(np.float32)
POSITIONS = np.arange(100, 300, dtype=np.float32)

CASES = {
    "rotary, a product of a column and a row": (
        "g (float[200,1] x, float[1,8] f) => (float[200,8] y, float[200,8] z) { p = Mul(x, f) y = Sin(p) z = Cos(p) }",
        POSITIONS[:, None],
    ),
    "rotary, a matrix product, both halves": (
        """g (float[200,1] x, float[1,8] f) => (float[1,200,16] y) <int64[1] first = {0}> {
            p = MatMul(x, f) c = Concat<axis = -1>(p, p) u = Unsqueeze(c, first) y = Cos(u) }""",
        POSITIONS[:, None],
    ),
    "rotary, an Einsum": (
        """g (float[200] x, float[1,8] f) => (float[200,8] y) <int64[1] first = {0}> {
            g = Squeeze(f, first) p = Einsum<equation = "i,j->ij">(x, g) y = Sin(p) }""",
        POSITIONS,
    ),
    "a timestep, a quotient": (
        """g (int64[200] x, float[1,8] f) => (float[200,16] y) <int64[1] last = {1}, float o = {1}> {
            c = Cast<to = 1>(x) u = Unsqueeze(c, last) r = Div(o, f) p = Div(u, r) s = Sin(p) k = Cos(p)
            y = Concat<axis = -1>(s, k) }""",
        POSITIONS.astype(np.int64),
    ),
    "positions that are counted": (
        """g (float[200] x, float[1,8] f) => (float[200,8] y) <int64[1] last = {1}, int64 axis = {0}, float two = {2}> {
            a = CumSum(x, axis) b = Mul(a, two) u = Unsqueeze(b, last) p = Mul(u, f) y = Sin(p) }""",
        np.ones(200, np.float32),
    ),
    "a phase that is shifted": (
        """g (float[200,1] x, float[1,8] f) => (float[200,8] y) <float s = {1.5707964}> {
            p = Mul(x, f) q = Add(p, s) y = Sin(q) }""",
        POSITIONS[:, None],
    ),
    "boxes, scaled to two pi and more": (
        """g (float[4,25,4] x, float[1,8] f) => (float[4,25,4,8] y) <int64[1] last = {3}, float s = {628.31853}> {
            a = Sigmoid(x) b = Mul(a, s) u = Unsqueeze(b, last) p = Mul(u, f) y = Cos(p) }""",
        np.random.default_rng(0).normal(size=(4, 25, 4)).astype(np.float32),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_phases_stay_float32(name: str) -> None:
    text, x = CASES[name]
    found = losses(text, {"x": x}, {"f": FREQUENCIES[None]})
    assert found.before > TOLERANCE
    assert found.after <= TOLERANCE
    assert "phases" in found.kept.values()


@pytest.mark.parametrize("seed", range(4))
def test_features_of_random_frequencies_in_front_of_a_product(seed: int) -> None:
    random = np.random.default_rng(seed)
    points, width = (int(random.integers(4, 30)) for _ in range(2))
    function = random.choice(["Sin", "Cos"])
    text = f"""g (float[2,{points},3] x, float[3,{width}] f, float[{width},8] w) => (float[2,{points},8] y) {{
        p = MatMul(x, f) s = {function}(p) y = MatMul(s, w) }}"""
    weights = {"f": random.normal(size=(3, width)) * 100, "w": random.normal(size=(width, 8))}
    x = random.uniform(-1, 1, (2, points, 3)).astype(np.float32)
    found = losses(text, {"x": x}, {name: array.astype(np.float32) for name, array in weights.items()})
    assert found.before > TOLERANCE
    assert found.after <= TOLERANCE
    assert "MatMul_y" not in found.kept


@pytest.mark.parametrize(
    ("product", "positions"),
    [
        ('Einsum<equation = "i,j->ij">(x, f)', (32,)),
        ("MatMul(x, f)", (32, 1)),
        ("Gemm(x, f)", (32, 1)),
        ("Mul(x, f)", (32, 1)),
        *[("MatMul(x, f)", (length, 1)) for length in np.random.default_rng(0).integers(24, 40, 2)],
    ],
)
@pytest.mark.parametrize("function", ["Sin", "Cos"])
def test_tables_of_few_dozen_positions_stay_float32_with_the_product_that_makes_them(
    product: str, positions: tuple[int, ...], function: str
) -> None:
    """The frequencies are rounded, and what they make."""
    frequencies = np.float32(0.9) * (FREQUENCIES if len(positions) == 1 else FREQUENCIES[None])
    text = f"""g (float[{",".join(map(str, positions))}] x, float[{",".join(map(str, frequencies.shape))}] f)
        => (float[{positions[0]},8] y) {{ p = {product} y = {function}(p) }}"""
    x = np.arange(positions[0], dtype=np.float32).reshape(positions)
    found = losses(text, {"x": x}, {"f": frequencies})
    assert found.after < 0.005 < found.before
    assert set(found.kept.values()) == {"phases"}


def test_small_arguments_stay_float16() -> None:
    text = "g (float[4,8] x) => (float[4,8] y) <float s = {6.2831855}> { p = Mul(x, s) y = Sin(p) }"
    found = losses(text, {"x": np.random.default_rng(0).uniform(0, 1, (4, 8)).astype(np.float32)})
    assert not found.kept


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("(int64[5] t) => (float[5] y) { x = Cast<to = 1>(t) [at] p = Mul(x, f) y = Sin(p) }", "phases"),
        ("(float[5] t) => (float[5] y) { [at] p = Mul(t, f) y = Cos(p) }", "phases"),
        ("(float[5] t, float n) => (float[N] y) { x = Range(f, n, f) [at] p = Mul(x, f) y = Cos(p) }", "phases"),
        ("(float[5,5] t) => (float[5,5] y) { x = Reshape(t, s) [at] p = MatMul(x, m) y = Cos(p) }", "phases"),
        ("(float[5] t) => (float[5] y) { x = Relu(t) [at] p = Mul(x, f) y = Cos(p) }", "none"),
        ("(float[5] t) => (float[5] y) { [at] x = Mul(t, f) y = Relu(x) }", "none"),
        ("(float[5] t) => (float[5] y) { [at] x = Identity(t) y = Sin(x) }", "none"),
    ],
)
def test_products_of_positions_are_evidence_where_nothing_was_measured(text: str, rule: str) -> None:
    constants = "<float f = {0.5}, int64[2] s = {5, 5}, float[5,1] m = {1, 1, 1, 1, 1}> {"
    assert judge(text.replace("{", constants, 1))["at"].rule == rule
