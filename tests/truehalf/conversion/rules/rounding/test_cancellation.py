"""Differences far below their operands: in emulated FP16 the file is wrong without the rule, and right with it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.truehalf.conversion.rules.judging import judge
from tests.truehalf.conversion.rules.rounding.losses import TOLERANCE, Arrays, losses

Draw = Callable[[np.random.Generator], Arrays]


def offset(*shape: int, by: float, spread: float = 1.0) -> Draw:
    return lambda random: {"x": (by + spread * random.normal(size=shape)).astype(np.float32)}


def between(low: float, high: float) -> Draw:
    return lambda random: {"x": random.uniform(low, high, (4, 50)).astype(np.float32)}


CASES = {
    "a deviation from mean squares": (
        """g (float[8,64] x) => (float[8,1] y) { a = Mul(x, x) m = ReduceMean<axes = [-1]>(x)
            s = ReduceMean<axes = [-1]>(a) b = Mul(m, m) v = Sub(s, b) y = Sqrt(v) }""",
        offset(8, 64, by=10, spread=0.5),
    ),
    "a variance of channels": (
        """g (float[2,4,8,8] x) => (float[2,4,1,1] y) <float two = {2}> { a = Pow(x, two) m = GlobalAveragePool(x)
            s = GlobalAveragePool(a) b = Pow(m, two) y = Sub(s, b) }""",
        offset(2, 4, 8, 8, by=5, spread=0.2),
    ),
    "centred rows": (
        "g (float[8,64] x) => (float[8,64] y) { m = ReduceMean<axes = [-1]>(x) y = Sub(x, m) }",
        offset(8, 64, by=300),
    ),
    "a norm of centred columns": (
        """g (float[2,32,9] x) => (float[2,1,9] y) { m = ReduceMean<axes = [1]>(x) n = Neg(m) d = Add(x, n)
            y = ReduceL2<axes = [1]>(d) }""",
        offset(2, 32, 9, by=300),
    ),
    "a spelt-out normalization": (
        """g (float[2,32,9] x) => (float[2,32,9] y) <float e = {0.00001}, float h = {0.5}> {
            m = ReduceMean<axes = [1]>(x) d = Sub(x, m) a = Mul(d, d) v = ReduceMean<axes = [1]>(a) w = Add(v, e)
            s = Pow(w, h) y = Div(d, s) }""",
        offset(2, 32, 9, by=300),
    ),
    "log(1 - p)": (
        "g (float[4,50] x) => (float[4,50] y) <float o = {1}> { p = Sigmoid(x) q = Sub(o, p) y = Log(q) }",
        between(-8, 8),
    ),
    "a logit as a quotient": (
        """g (float[4,50] x) => (float[4,50] y) <float o = {1}> {
            p = Sigmoid(x) q = Sub(o, p) d = Div(p, q) y = Log(d) }""",
        between(-8, 8),
    ),
    "a logit as a difference": (
        """g (float[4,50] x) => (float[4,50] y) <float o = {1}> {
            p = Sigmoid(x) n = Neg(p) q = Add(o, n) a = Log(p) b = Log(q) y = Sub(a, b) }""",
        between(-8, 8),
    ),
    "softplus minus x": (
        "g (float[4,50] x) => (float[4,50] y) { p = Softplus(x) y = Sub(p, x) }",
        between(4, 9),
    ),
    "compared as well as subtracted": (
        """g (float[4,50] x) => (float[4,50] y) <float s = {1.7}> { h = Mul(x, s)
            m = ReduceMean<axes = [-1]>(h) d = Sub(h, m) n = Neg(d) c = Less(m, h) y = Where(c, d, n) }""",
        offset(4, 50, by=50, spread=0.01),
    ),
    "1 / (1 - tanh)": (
        "g (float[4,50] x) => (float[4,50] y) <float o = {1}> { p = Tanh(x) q = Sub(o, p) y = Reciprocal(q) }",
        between(-1, 4),
    ),
    "exp(x) - 1": (
        "g (float[4,50] x) => (float[4,50] y) <float o = {1}> { e = Exp(x) y = Sub(e, o) }",
        between(-0.005, 0.005),
    ),
    "the fraction of a large number": (
        "g (float[4,50] x) => (float[4,50] y) <float s = {37.3}> { h = Mul(x, s) q = Floor(h) y = Sub(h, q) }",
        between(8, 12),
    ),
    "probabilities of large logits": (
        "g (float[4,50] x) => (float[4,50] y) <float t = {0.003}> { h = Mul(x, x) d = Div(h, t) y = Softmax(d) }",
        between(0.9, 1),
    ),
    "an angle": ("g (float[4,50] x) => (float[4,50] y) { c = Cos(x) y = Acos(c) }", between(0.001, 0.2)),
    "LayerNormalization": (
        """g (float[8,64] x) => (float[8,64] y) <int64[1] n = {64}> { s = ConstantOfShape<value = float[1] {1}>(n)
            y = LayerNormalization(x, s) }""",
        offset(8, 64, by=300),
    ),
    "InstanceNormalization": (
        """g (float[2,4,8,8] x) => (float[2,4,8,8] y) <float[4] s = {1, 1, 1, 1}, float[4] b = {0, 0, 0, 0}> {
            y = InstanceNormalization(x, s, b) }""",
        offset(2, 4, 8, 8, by=300),
    ),
    "BatchNormalization": (
        """g (float[2,2,8,8] x) => (float[2,2,8,8] y) <float[2] s = {1, 1}, float[2] m = {300, 300}> {
            y = BatchNormalization(x, s, s, m, s) }""",
        offset(2, 2, 8, 8, by=300),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_cancels_stays_float32_from_where_it_was_computed(name: str) -> None:
    text, draw = CASES[name]
    found = losses(text, draw(np.random.default_rng(3)))
    assert found.before > TOLERANCE
    assert found.after <= TOLERANCE
    assert "cancellation" in found.kept.values()


DISTANCES = """g (float[{n},{k}] x, float[{n},{k}] z) => (float[{n},{n}] y)
    <int64[1] last = {{1}}, float two = {{2}}, float zero = {{0}}> {{
        a = Mul(x, x) b = {square} s = ReduceSum(a, last) t = ReduceSum(b, last)
        r = Transpose<perm = [1, 0]>(t) u = Transpose<perm = [1, 0]>(z) p = MatMul(x, u) q = Mul(p, two)
        v = Add(s, r) w = Sub(v, q) {end} }}"""


@pytest.mark.parametrize("seed", range(4))
def test_distances_of_near_points(seed: int) -> None:
    random = np.random.default_rng(seed)
    n, k = (int(random.integers(low, 24)) for low in (4, 8))
    square = random.choice(["Mul(z, z)", "Pow(z, two)"])
    end = random.choice(["y = Identity(w)", "c = Max(w, zero) y = Sqrt(c)", "c = Relu(w) y = Sqrt(c)"])
    x = 3 + random.normal(size=(n, k)) * 0.2
    feed = {"x": x, "z": x + random.normal(size=(n, k)) * 0.05}
    text = DISTANCES.format(n=n, k=k, square=square, end=end)
    found = losses(text, {name: array.astype(np.float32) for name, array in feed.items()})
    assert found.before > TOLERANCE
    assert found.after <= TOLERANCE


@pytest.mark.parametrize("seed", range(4))
def test_offset_rows_in_the_middle_of_a_graph(seed: int) -> None:
    """Between products with weights, which stay FP16 where their own output is not what cancels."""
    random = np.random.default_rng(seed)
    width, axis = int(random.integers(16, 64)), int(random.choice([-1, 1]))
    shape = f"2,{random.integers(3, 9)},{width}" if axis == -1 else f"{random.integers(3, 9)},{width}"
    norm = random.choice(
        [
            "n = LayerNormalization(h, s)",
            f"m = ReduceMean<axes = [{axis}]>(h) n = Sub(h, m)",
            f"m = ReduceMean<axes = [{axis}]>(h) d = Sub(h, m) l = ReduceL2<axes = [{axis}]>(d) n = Div(d, l)",
            f"a = Abs(h) m = ReduceMax<axes = [{axis}]>(a) n = Sub(m, h)",
        ]
    )
    text = f"""g (float[{shape}] x, float[{width},{width}] w, float[{width}] b, float[{width}] s)
        => (float[{shape}] y) {{ p = MatMul(x, w) h = Add(p, b) {norm} y = MatMul(n, w) }}"""
    weights = {
        "w": random.normal(size=(width, width)) / width**0.5,
        "b": np.full(width, random.uniform(200, 400)),
        "s": np.ones(width),
    }
    x = random.normal(size=tuple(map(int, shape.split(","))))
    found = losses(
        text, {"x": x.astype(np.float32)}, {name: array.astype(np.float32) for name, array in weights.items()}
    )
    assert found.before > TOLERANCE
    assert found.after <= TOLERANCE
    assert "MatMul_y" not in found.kept


def test_in_a_graph_that_is_measured_from_checkpoints() -> None:
    """Beyond 64 nodes of known sizes the second pass goes on from tensors that the first one kept."""
    chain = " ".join(f"h{i + 1} = Tanh(h{i})" for i in range(80))
    text = f"""g (float[4,50] x) => (float[4,50] y, float[4,50] z)
        <float o = {{1}}, float s = {{300}}, float t = {{60}}> {{ h0 = Identity(x) {chain}
        p = Mul(h80, t) q = Sigmoid(p) r = Sub(o, q) y = Log(r) k = Add(h80, s) z = Sub(k, s) }}"""
    found = losses(text, between(0.1, 9)(np.random.default_rng(0)))
    assert found.before > TOLERANCE
    assert found.after <= TOLERANCE
    assert {"Sigmoid_q", "Log_y", "Add_k"} <= found.kept.keys()


def test_what_does_not_cancel_stays_float16() -> None:
    text = """g (float[8,64] x, float[64,64] w, float[64] s) => (float[8,64] y) { h = MatMul(x, w) a = Add(h, x)
        n = LayerNormalization(a, s) p = Sigmoid(n) l = Log(p) y = MatMul(l, w) }"""
    random = np.random.default_rng(0)
    weights = {"w": (random.normal(size=(64, 64)) / 8).astype(np.float32), "s": np.ones(64, np.float32)}
    found = losses(text, {"x": random.normal(size=(8, 64)).astype(np.float32)}, weights)
    assert not found.kept
    assert found.after <= TOLERANCE


@pytest.mark.parametrize(
    "nodes",
    [
        "k = Add(h, e) d = Sub(k, h) a = Add(h, d)",  # what is added to rounds away as much
        "k = Add(h, e) d = Sub(k, h) t = Reshape(d, shape) a = Sub(t, h)",
        "m = ReduceMean<axes = [1]>(h) d = Sub(h, m) k = ReduceMean<axes = [1]>(d) f = Sub(d, k) g = Sub(d, f)"
        " a = Mul(g, h)",  # g is float32's rounding
    ],
)
def test_differences_that_are_rounded_away_or_rounding_stay_float16(nodes: str) -> None:
    text = f"""g (float[8,64] x, float[64,64] w) => (float[8,64] y) <float e = {{0.001}}, int64[2] shape = {{8, 64}}> {{
        h = MatMul(x, w) {nodes} y = MatMul(a, w) }}"""
    random = np.random.default_rng(0)
    weights = {"w": (random.normal(size=(64, 64)) / 8).astype(np.float32)}
    found = losses(text, {"x": random.normal(size=(8, 64), scale=10).astype(np.float32)}, weights)
    assert not found.kept


VARIANCE = """(float[2,8] x) => (float[2,1] y) <float two = {2}> {
    [square] a = %s [mean] m = ReduceMean<axes = [1]>(x) [squares] s = ReduceMean<axes = [1]>(a)
    [squared] b = %s [difference] v = Sub(s, b) [root] y = Sqrt(v) }"""


@pytest.mark.parametrize(
    ("square", "squared", "rule"),
    [
        ("Mul(x, x)", "Mul(m, m)", "cancellation"),
        ("Pow(x, two)", "Mul(m, m)", "cancellation"),
        ("Mul(x, x)", "Pow(m, two)", "cancellation"),
        ("Mul(x, two)", "Mul(m, m)", "none"),
        ("Mul(x, x)", "Mul(m, two)", "none"),
    ],
)
def test_the_pattern_of_a_variance_is_evidence_where_nothing_was_measured(square: str, squared: str, rule: str) -> None:
    names = ("square", "mean", "squares", "squared", "difference")
    found = judge(VARIANCE % (square, squared))
    assert [found[name].rule for name in names] == [rule] * len(names)
    assert found["root"].rule == "none"


HIDDEN = {
    "a crop": "d = Sub(h, o) y = Slice(d, first, few, last)",
    "some columns": "d = Sub(h, o) y = Gather<axis = 1>(d, picked)",
    "some columns of a transposed one": "d = Sub(h, o) t = Transpose(d) y = Gather<axis = 0>(t, picked)",
    "a mask": "d = Sub(h, o) y = Where(mask, d, nothing)",
    "bounds": "d = Sub(h, o) y = Clip(d, least, most)",
    "the smaller one": "d = Sub(h, o) y = Min(d, most)",
    "the smallest": "d = Sub(h, o) y = ReduceMin<axes = [1]>(d)",
    "a function with bounds": "n = Neg(o) d = Add(h, n) y = Sigmoid(d)",
}


@pytest.mark.parametrize("name", HIDDEN)
def test_a_difference_is_small_beside_what_is_left_of_it(name: str) -> None:
    """Larger elements of it are cropped or bounded, and hide nothing."""
    many, random = 32, np.random.default_rng(0)
    text = f"""g (float[8,{many}] x, float[{many}] o, float[{many}] k, bool[{many}] mask) => (float[a,b] y)
        <int64[1] first = {{0}}, int64[1] few = {{4}}, int64[1] last = {{1}}, int64[3] picked = {{2, 0, 1}},
        float nothing = {{0}}, float least = {{-3}}, float most = {{3}}> {{ h = Add(x, k) {HIDDEN[name]} }}"""
    shift = np.where(np.arange(many) < 4, 300, 0).astype(np.float32)
    weights = {"k": shift, "o": shift - (shift == 0) * np.float32(200), "mask": shift > 0}
    found = losses(text, {"x": random.normal(size=(8, many)).astype(np.float32)}, weights)
    assert found.before > TOLERANCE
    assert found.after <= TOLERANCE
    assert found.kept["Add_h"] == "cancellation"


CHOSEN = {
    "the margin of the first": "v, i = TopK<axis = 1>(h, two) y, l = Split<axis = 1>(v, ones) t = Sub(y, l)",
    "a range": "a, i = TopK<axis = 1>(h, one) b, j = TopK<axis = 1, largest = 0>(h, one) t = Sub(a, b)",
    "pooled contrast": "e = Unsqueeze(h, one) p = MaxPool<kernel_shape = [32]>(e) q = Squeeze(p, one) t = Sub(q, h)",
}


@pytest.mark.parametrize("name", CHOSEN)
def test_what_is_chosen_from_stays_float32_too(name: str) -> None:
    random = np.random.default_rng(0)
    text = f"""g (float[4,32] x, float[32,32] w, float[32] k) => (float[a,b] t)
        <int64[1] one = {{1}}, int64[1] two = {{2}}, int64[2] ones = {{1, 1}}> {{ p0 = MatMul(x, w) h = Add(p0, k)
        {CHOSEN[name]} }}"""
    weights = {"w": random.normal(size=(32, 32)) / 6, "k": np.full(32, 300.0)}
    feed = {"x": random.normal(size=(4, 32)).astype(np.float32)}
    found = losses(text, feed, {name: array.astype(np.float32) for name, array in weights.items()})
    assert found.before > TOLERANCE
    assert found.after <= TOLERANCE


STEEP = {
    "log(1 - erf)": "e = Erf(x) d = Sub(one, e) y = Log(d)",
    "log(1 - tanh)": "e = Tanh(x) d = Sub(one, e) y = Log(d)",
    "an odds ratio": "e = Sigmoid(x) d = Sub(one, e) q = Div(e, d) y = Sqrt(q)",
}


@pytest.mark.parametrize("seed", [1, 6, 7])
@pytest.mark.parametrize("name", STEEP)
def test_what_is_steep_has_room_for_other_samples(name: str, seed: int) -> None:
    """The samples of calibration show a half of what others lose."""
    random = np.random.default_rng(seed)
    text = f"g (float[N,50] x) => (float[N,50] y) <float one = {{1}}> {{ {STEEP[name]} }}"
    few, many = (random.normal(size=(count, 50)).astype(np.float32) for count in (8, 32))
    found = losses(text, {"x": few}, other={"x": many})
    assert found.after <= TOLERANCE
