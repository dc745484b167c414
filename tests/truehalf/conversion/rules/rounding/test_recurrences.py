"""Running sums and averages in Loop and Scan, whose state float16 would round in every turn."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from tests.tiers import third_of
from tests.truehalf.conversion.rules.rounding.losses import TOLERANCE, Losses, losses

TURNS = 1500
CONSTANTS = "float[4] zero = {0, 0, 0, 0}, float keep = {0.998}, float take = {0.002}, bool go = {1}, "
CONSTANTS += "float[4,4] turn = {0.8, 0.6, 0, 0, -0.6, 0.8, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}"


def scan(update: str, turns: int, attributes: str = "") -> str:
    return f"""g (float[{turns},4] x, float[4,4] w) => (float[4] y, float[{turns},4] ys) <{CONSTANTS}> {{
        p = MatMul(x, w) a = Abs(p) y, ys = Scan<num_scan_inputs = 1, {attributes}
        body = b (float[4] s, float[4] v) => (float[4] t, float[4] o) {{ {update} o = Neg(t) }}>(zero, a) }}"""


def loop(update: str, turns: int) -> str:
    return f"""g (float[{turns},4] x, float[4,4] w) => (float[4] y) <{CONSTANTS}, int64 n = {{{turns}}}> {{
        p = MatMul(x, w) a = Abs(p) y = Loop(n, go, zero)
        <body = b (int64 i, bool c, float[4] s) => (bool d, float[4] t) {{
            d = Identity(c) v = Gather(a, i) {update} }}> }}"""


UPDATES = {
    "a sum": "t = Add(s, v)",
    "its operands exchanged": "t = Add(v, s)",
    "a difference": "t = Sub(s, v)",
    "an average": "q = Mul(s, keep) r = Mul(v, take) t = Add(q, r)",
    "a step towards": "e = Sub(v, s) m = Mul(e, take) t = Add(s, m)",
    "where it is large": "l = Greater(v, take) n1 = Add(s, v) t = Where(l, n1, s)",
    "of several": "t = Sum(s, v, v)",
    "turned by a matrix": "q = MatMul(s, turn) t = Add(q, v)",
}


def found_in(text: str, turns: int, seed: int = 0) -> Losses:
    random = np.random.default_rng(seed)
    feed = {"x": random.normal(size=(turns, 4)).astype(np.float32) / 20}
    weights: Mapping[str, np.ndarray] = {"w": np.float32(random.normal(size=(4, 4)))}
    return losses(text, feed, weights)


@pytest.mark.parametrize("name", third_of(UPDATES))
@pytest.mark.parametrize("kind", [scan, loop])
def test_long_ones_stay_float32(name: str, kind: object) -> None:
    text = scan(UPDATES[name], TURNS) if kind is scan else loop(UPDATES[name], TURNS)
    found = found_in(text, TURNS)
    if (name, kind) != ("a step towards", loop):  # whose last state is nearer than those before
        assert found.before > TOLERANCE / 2
    assert found.after <= TOLERANCE / 2
    assert set(found.kept.values()) == {"inner"}
    assert any(node.startswith(("Loop", "Scan")) for node in found.kept)


@pytest.mark.parametrize("name", UPDATES)
def test_short_ones_are_float16(name: str) -> None:
    assert "inner" not in found_in(loop(UPDATES[name], 8), 8).kept.values()


@pytest.mark.parametrize(
    "update", ["t = Max(s, v)", "q = Add(s, v) t = Tanh(q)", "t = Identity(v)", "e = Sub(s, s) t = Add(e, v)"]
)
def test_what_binds_the_error_is_float16(update: str) -> None:
    found = found_in(loop(update, TURNS), TURNS)
    assert "inner" not in found.kept.values()
    assert found.before <= TOLERANCE


@pytest.mark.parametrize("seed", range(4))
def test_averages_that_a_generator_draws(seed: int) -> None:
    """As fast as each forgets: what is kept in float16 is within the tolerance."""
    keep = float(np.random.default_rng(seed).choice([0.5, 0.9, 0.99, 0.999]))
    text = loop(UPDATES["an average"], TURNS).replace("0.998", f"{keep}").replace("0.002", f"{1 - keep:.3f}")
    found = found_in(text, TURNS, seed)
    assert found.after <= TOLERANCE
    assert ("inner" in found.kept.values()) == (found.before > TOLERANCE)


def test_backwards_over_another_axis() -> None:
    text = scan(UPDATES["a sum"], TURNS, "scan_input_directions = [1], scan_output_directions = [1],")
    found = found_in(text, TURNS)
    assert found.before > TOLERANCE / 2
    assert found.after <= TOLERANCE / 2


def test_only_what_leads_to_the_sum_stays_float32() -> None:
    """Another state, which is bounded, has its nodes in float16; one type holds at all places of a Loop."""
    text = f"""g (float[{TURNS},4] x, float[4,4] w) => (float[4] y, float[4] z) <{CONSTANTS}, int64 n = {{{TURNS}}}> {{
        p = MatMul(x, w) a = Abs(p) y, z = Loop(n, go, zero, zero)
        <body = b (int64 i, bool c, float[4] s, float[4] u) => (bool d, float[4] t, float[4] k)
        {{ d = Identity(c) v = Gather(a, i) t = Add(s, v) m = Mul(u, v) k = Sigmoid(m) }}> }}"""
    found = found_in(text, TURNS)
    assert found.after <= TOLERANCE / 2
    assert found.kept.keys() >= {"Loop_y", "Add_t"}
    assert not found.kept.keys() & {"MatMul_p", "Sigmoid_k"}
