"""How much stays FP32: as much as holds whatever step the rounding of one sample happens to hide."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.truehalf.calibration.small_graphs import parsed
from tests.truehalf.conversion.rules.rounding.losses import TOLERANCE, losses
from truehalf.calibration.calibrate import calibrate
from truehalf.calibration.ranges_form import Rounding, RoundingStep, limit_of
from truehalf.conversion.rules.rounding.measured import kept
from truehalf.ir.normalize import PREPARE

LIMIT = limit_of("cancellation")


@pytest.mark.parametrize(
    ("errors", "count"),
    [
        ([0.9, 0.0], 2),
        ([0.9, LIMIT / 4, 0.0], 2),
        ([0.9, LIMIT * 0.9, LIMIT / 4, 0.0], 3),  # barely within the limit
        ([0.9, LIMIT / 4, LIMIT * 9, 0.0], 4),  # two roundings hide each other
        ([0.9, LIMIT / 4, LIMIT * 0.9, LIMIT / 4], 4),
        ([0.9, LIMIT * 9, LIMIT * 0.9], 3),  # no step is enough
        ([], 0),
    ],
)
def test_the_first_step_from_which_on_half_the_limit_holds(errors: list[float], count: int) -> None:
    steps = tuple(RoundingStep(error, tuple("abcd"[: index + 1])) for index, error in enumerate(errors))
    assert kept(Rounding("cancellation", 0.9, LIMIT, "s", steps)) == tuple("abcd"[:count])


@pytest.mark.parametrize("seed", range(5))
def test_squared_distances_from_weights_whose_factor_stands_at_the_input(seed: int) -> None:
    """2 x and x are rounded alike, so that rounding both hides what rounding one does."""
    random = np.random.default_rng(seed)
    rows, codes, width = (int(random.integers(low, low + 16)) for low in (4, 10, 16))
    factor, product = random.choice(["Mul(x, two)", "Add(x, x)"]), random.choice(["MatMul(f, w)", "Gemm(f, w)"])
    text = f"""g (float[{rows},{width}] x, float[{width},{codes}] w, float[{codes}] n) => (float[{rows},{codes}] y)
        <float two = {{2}}, int64[1] last = {{1}}> {{ q = Mul(x, x) s = ReduceSum(q, last) t = Add(s, n) f = {factor}
        p = {product} y = Sub(t, p) }}"""
    w = random.normal(2, 0.05, (width, codes)).astype(np.float32)
    found = losses(text, {"x": random.normal(2, 0.05, (rows, width)).astype(np.float32)}, {"w": w, "n": (w**2).sum(0)})
    assert found.before > TOLERANCE
    assert found.after <= TOLERANCE


@pytest.mark.parametrize("seed", range(5))
def test_groups_normalized_by_mean_squares(seed: int) -> None:
    random = np.random.default_rng(seed)
    groups, offset = int(random.integers(2, 6)), random.uniform(6, 12)
    text = f"""g (float[2,{groups * 4},6,6] x) => (float[2,{groups * 4},6,6] y)
        <float e = {{0.000001}}, float zero = {{0}}, int64[3] g = {{2, {groups}, -1}}> {{
        r = Reshape(x, g) m = ReduceMean<axes = [-1]>(r) q = Mul(r, r) s = ReduceMean<axes = [-1]>(q) b = Mul(m, m)
        v = Sub(s, b) c = Clip(v, zero) w = Add(c, e) d = Sqrt(w) k = Sub(r, m) n = Div(k, d) i = Shape(x)
        y = Reshape(n, i) }}"""
    found = losses(text, {"x": random.normal(offset, 0.4, (2, groups * 4, 6, 6)).astype(np.float32)})
    assert found.before > TOLERANCE
    assert found.after <= TOLERANCE


def test_every_sample_counts_in_what_is_left() -> None:
    """On another sample than the worst one more may be lost by what is left in float16."""
    text = """g (float[4,64] x) => (float[4,1] y) { q = Mul(x, x) s = ReduceMean<axes = [1]>(q)
        m = ReduceMean<axes = [1]>(x) t = Mul(m, m) v = Sub(s, t) y = Sqrt(v) }"""
    model = parsed(text)
    PREPARE(model)
    random = np.random.default_rng(0)
    feeds = [{"x": (20 + 0.4 * random.normal(size=(4, 64))).astype(np.float32)} for _ in range(5)]
    together = calibrate(model, feeds)["rounding"]["Sqrt_y"]["steps"]
    alone = [calibrate(model, [feed])["rounding"]["Sqrt_y"]["steps"] for feed in feeds]
    worst = [max(steps[index]["error"] for steps in alone) for index in range(len(together))]
    assert [step["error"] for step in together] == pytest.approx(worst, rel=1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_powers_of_the_input_that_cancel(seed: int) -> None:
    """(x - 1)^n, multiplied out: it is exact in whatever x is rounded to, unless one power alone reads x rounded."""
    random = np.random.default_rng(seed)
    degree = int(random.integers(4, 8))
    nodes, weights, total = "", {}, ""
    for power in range(1, degree + 1):
        weights[f"p{power}"] = np.array(power, np.float32)
        weights[f"f{power}"] = np.array(math.comb(degree, power), np.float32)
        sign = "Add" if (degree - power) % 2 == 0 else "Sub"
        first = total or "f0"
        total = f"t{power}"
        nodes += f"e{power} = Pow(x, p{power}) m{power} = Mul(e{power}, f{power}) {total} = {sign}({first}, m{power}) "
    weights["f0"] = np.array((-1) ** degree, np.float32)
    inputs = ", ".join(f"float {name}" for name in weights)
    text = f"g (float[4,9] x, {inputs}) => (float[4,9] y) {{ {nodes} y = Identity({total}) }}"
    found = losses(text, {"x": random.uniform(0.3, 0.7, (4, 9)).astype(np.float32)}, weights)
    assert found.after <= TOLERANCE
