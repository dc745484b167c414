"""Differences between what bodies of If, Loop and Scan write, and in a body between what is written around it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.truehalf.conversion.rules.rounding.losses import TOLERANCE, losses

MOMENTS = """{p}q = Mul({x}, {x}) {p}s = ReduceMean<axes = [-1]>({p}q)
    {p}m = ReduceMean<axes = [-1]>({x}) {p}t = Mul({p}m, {p}m)"""
STATE = "(int64 i, bool c, float[6,1] a) => (bool d, float[6,1] b)"


def moments(prefix: str, source: str = "x") -> str:
    return MOMENTS.format(p=prefix, x=source)


def offset(random: np.random.Generator) -> np.ndarray:
    return (random.uniform(8, 12) + 0.4 * random.normal(size=(6, 40))).astype(np.float32)


CASES = {
    "operands in both branches of an If": f"""g (float[6,40] x, bool k) => (float[6,1] y) {{
        s, t = If(k) <then_branch = p () => (float[6,1] ps, float[6,1] pt) {{ {moments("p")} }},
            else_branch = e () => (float[6,1] es, float[6,1] et) {{ en = Neg(x) {moments("e", "en")} }}>
        v = Sub(s, t) y = Sqrt(v) }}""",
    "an operand that a Loop adds up": """g (float[6,40] x) => (float[6] y)
        <int64 n = {40}, float[6] z = {0, 0, 0, 0, 0, 0}, float w = {40}> {
        s, q = Loop(n, , z, z) <body = l (int64 i, bool c, float[6] a, float[6] b) => (bool d, float[6] e, float[6] f) {
            d = Identity(c) r = Gather<axis = 1>(x, i) e = Add(a, r) u = Mul(r, r) f = Add(b, u) }>
        m = Div(s, w) o = Div(q, w) t = Mul(m, m) v = Sub(o, t) y = Sqrt(v) }""",
    "operands that a Scan writes": """g (float[6,40] x) => (float[6,1] y) <float[1] z = {0}> {
        f, s, t = Scan<num_scan_inputs = 1, body = l (float[1] a, float[40] r) => (float[1] b, float[1] e, float[1] h) {
            q = Mul(r, r) e = ReduceMean<axes = [-1]>(q) m = ReduceMean<axes = [-1]>(r) h = Mul(m, m) b = Add(a, e) }>
            (z, x) v = Sub(s, t) y = Sqrt(v) }""",
    "operands in front of a Loop": f"""g (float[6,40] x) => (float[6,1] y)
        <int64 n = {{2}}, float[6,1] z = {{0, 0, 0, 0, 0, 0}}> {{ {moments("")}
        y = Loop(n, , z) <body = l {STATE} {{ d = Identity(c) v = Sub(s, t) r = Sqrt(v) b = Add(a, r) }}> }}""",
    "operands in front of an If, moved": f"""g (float[6,40] x, bool k) => (float[1,6] y) {{ {moments("")}
        u = Transpose<perm = [1, 0]>(s) w = Transpose<perm = [1, 0]>(t)
        y = If(k) <then_branch = p () => (float[1,6] b) {{ v = Sub(u, w) b = Sqrt(v) }},
            else_branch = e () => (float[1,6] h) {{ h = Neg(u) }}> }}""",
}


@pytest.mark.parametrize("name", CASES)
def test_what_bodies_write_and_read_stays_float32(name: str) -> None:
    text = CASES[name]
    feed = {"x": offset(np.random.default_rng(0))} | ({"k": np.array(True)} if "bool k" in text else {})
    found = losses(text, feed)
    assert found.before > TOLERANCE
    assert found.after <= TOLERANCE


@pytest.mark.parametrize("seed", range(6))
def test_generated_bodies(seed: int) -> None:
    """An operand each from around a Loop and from its body, or both, the difference in it or behind it."""
    random = np.random.default_rng(seed)
    end = random.choice(["y = Sqrt(v)", "y = Log(v)", "y = Reciprocal(v)"])
    inside = random.choice(["h = Add(s, zero)", "h = Abs(s)", "h = Max(s, zero)"])
    behind = seed % 2
    difference = f"v = Sub(o, t) {end}"
    body = f"{inside} b = Identity(h)" if behind else f"{inside} v = Sub(h, t) {end.replace('y =', 'b =')}"
    text = f"""g (float[6,40] x) => (float[6,1] y)
        <int64 n = {{{random.integers(1, 4)}}}, float[6,1] z = {{0, 0, 0, 0, 0, 0}}, float zero = {{0}}> {{
        {moments("")}
        {"o" if behind else "y"} = Loop(n, , z) <body = l {STATE} {{ d = Identity(c) {body} }}>
        {difference if behind else ""} }}"""
    found = losses(text, {"x": offset(random)})
    assert found.before > TOLERANCE
    assert found.after <= TOLERANCE


def test_what_a_body_computes_beside_it_stays_float16() -> None:
    text = f"""g (float[6,40] x, float[40,40] w, bool k) => (float[6,1] y, float[6,40] z) {{
        s, t, z = If(k) <then_branch = p () => (float[6,1] ps, float[6,1] pt, float[6,40] pz) {{
            {moments("p")} pa = MatMul(x, w) pz = Tanh(pa) }},
        else_branch = e () => (float[6,1] es, float[6,1] et, float[6,40] ez) {{
            {moments("e")} ea = Mul(x, x) ez = Tanh(ea) }}>
        v = Sub(s, t) y = Sqrt(v) }}"""
    random = np.random.default_rng(0)
    weights = {"w": (random.normal(size=(40, 40)) / 60).astype(np.float32)}
    found = losses(text, {"x": offset(random), "k": np.array(True)}, weights)
    assert found.after <= TOLERANCE
    assert not {"MatMul_pa", "Tanh_pz"} & found.kept.keys()
