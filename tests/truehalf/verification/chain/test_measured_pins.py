"""Graphs that no rule foresees: differences far below their operands, phases, small rows, positions by a Softmax."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from tests.tiers import first_of
from truehalf import Precision, compare, convert

Arrays = Mapping[str, np.ndarray]
Draw = Callable[[np.random.Generator], np.ndarray]
EVERYWHERE: dict[str, Any] = {"placement": "eager", "data_max": None, "epsilons": False}


@dataclass(frozen=True)
class Graph:
    """ONNX text, what draws the input x, and weights in place of other inputs."""

    text: str
    draw: Draw
    weights: Arrays


GRAPHS: dict[str, Graph] = {}
OPSET = '<ir_version: 8, opset_import: ["": 17]> '


def _add(kind: str, cases: Mapping[str, tuple[str, Draw]], weights: Arrays | None = None) -> None:
    GRAPHS.update({f"{kind}: {name}": Graph(text, draw, weights or {}) for name, (text, draw) in cases.items()})


# --- differences ------------------------------------------------------------------------------------------------------


def offset(*shape: int, by: float, spread: float = 1.0) -> Draw:
    return lambda random: (by + spread * random.normal(size=shape)).astype(np.float32)


def between(low: float, high: float) -> Draw:
    return lambda random: random.uniform(low, high, (4, 50)).astype(np.float32)


DIFFERENCES: dict[str, tuple[str, Draw]] = {
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
_add("difference", DIFFERENCES)


# --- phases -----------------------------------------------------------------------------------------------------------

FREQUENCIES = (100.0 ** -(np.arange(8) / 8)).astype(np.float32)


def positions(random: np.random.Generator) -> np.ndarray:
    return (np.arange(200) + random.integers(60, 140)).astype(np.float32)


PHASES: dict[str, tuple[str, Draw]] = {
    "rotary, a product of a column and a row": (
        "g (float[200,1] x, float[1,8] f) => (float[200,8] y, float[200,8] z) { p = Mul(x, f) y = Sin(p) z = Cos(p) }",
        lambda random: positions(random)[:, None],
    ),
    "rotary, a matrix product, both halves": (
        """g (float[200,1] x, float[1,8] f) => (float[1,200,16] y) <int64[1] first = {0}> {
            p = MatMul(x, f) c = Concat<axis = -1>(p, p) u = Unsqueeze(c, first) y = Cos(u) }""",
        lambda random: positions(random)[:, None],
    ),
    "rotary, an Einsum": (
        """g (float[200] x, float[1,8] f) => (float[200,8] y) <int64[1] first = {0}> {
            g = Squeeze(f, first) p = Einsum<equation = "i,j->ij">(x, g) y = Sin(p) }""",
        positions,
    ),
    "a timestep, a quotient": (
        """g (int64[200] x, float[1,8] f) => (float[200,16] y) <int64[1] last = {1}, float o = {1}> {
            c = Cast<to = 1>(x) u = Unsqueeze(c, last) r = Div(o, f) p = Div(u, r) s = Sin(p) k = Cos(p)
            y = Concat<axis = -1>(s, k) }""",
        lambda random: positions(random).astype(np.int64),
    ),
    "positions that are counted": (
        """g (float[200] x, float[1,8] f) => (float[200,8] y) <int64[1] last = {1}, int64 axis = {0}, float two = {2}> {
            a = CumSum(x, axis) b = Mul(a, two) u = Unsqueeze(b, last) p = Mul(u, f) y = Sin(p) }""",
        lambda random: np.full(200, random.uniform(0.9, 1.1), np.float32),
    ),
    "a phase that is shifted": (
        """g (float[200,1] x, float[1,8] f) => (float[200,8] y) <float s = {1.5707964}> {
            p = Mul(x, f) q = Add(p, s) y = Sin(q) }""",
        lambda random: positions(random)[:, None],
    ),
    "boxes, scaled to two pi and more": (
        """g (float[4,25,4] x, float[1,8] f) => (float[4,25,4,8] y) <int64[1] last = {3}, float s = {628.31853}> {
            a = Sigmoid(x) b = Mul(a, s) u = Unsqueeze(b, last) p = Mul(u, f) y = Cos(p) }""",
        lambda random: random.normal(size=(4, 25, 4)).astype(np.float32),
    ),
}
_add("phase", PHASES, {"f": FREQUENCIES[None]})


# --- small rows -------------------------------------------------------------------------------------------------------


def rows(random: np.random.Generator, scale: float = 1.0) -> np.ndarray:
    """Rows of which one is far smaller than the others."""
    x = scale * random.normal(size=(8, 64))
    x[3] *= 2e-7
    return x.astype(np.float32)


def logits(random: np.random.Generator) -> np.ndarray:
    return random.uniform(-30, -20, (8, 10)).astype(np.float32)


SMALL: dict[str, tuple[str, Draw]] = {
    "divided by their norm": (
        """g (float[8,64] x) => (float[8,64] y) <int64[1] last = {1}> {
            a = Mul(x, x) s = ReduceSum(a, last) n = Sqrt(s) y = Div(x, n) }""",
        rows,
    ),
    "divided by ReduceL2": (
        "g (float[8,64] x) => (float[8,64] y) { n = ReduceL2<axes = [1]>(x) y = Div(x, n) }",
        rows,
    ),
    "divided by their sum": (
        "g (float[8,64] x) => (float[8,64] y) { a = Abs(x) n = ReduceL1<axes = [-1]>(a) y = Div(a, n) }",
        rows,
    ),
    "divided by their largest": (
        """g (float[8,64] x) => (float[64,8] y) { t = Transpose<perm = [1, 0]>(x) a = Abs(t)
            n = ReduceMax<axes = [0]>(a) y = Div(t, n) }""",
        rows,
    ),
    "root mean squares": (
        """g (float[8,64] x) => (float[8,64] y) <float two = {2}> { a = Pow(x, two) m = ReduceMean<axes = [1]>(a)
            s = Sqrt(m) r = Reciprocal(s) y = Mul(x, r) }""",
        rows,
    ),
    "LpNormalization": ("g (float[8,64] x) => (float[8,64] y) { y = LpNormalization<axis = 1>(x) }", rows),
    "a root of a sum of squares": (
        """g (float[8,64] x) => (float[8] y) <int64[1] last = {1}, float h = {0.5}> {
            a = Mul(x, x) s = ReduceSum<keepdims = 0>(a, last) y = Pow(s, h) }""",
        lambda random: rows(random, 1e-4),
    ),
    "a root of a mean of squares over pixels": (
        "g (float[2,4,8,8] x) => (float[2,4,1,1] y) { a = Mul(x, x) m = GlobalAveragePool(a) y = Sqrt(m) }",
        lambda random: rows(random, 1e-4).reshape(2, 4, 8, 8),
    ),
    "a logarithm of an exponential": ("g (float[8,10] x) => (float[8,10] y) { e = Exp(x) y = Log(e) }", logits),
    "a logarithm of a sum of exponentials": (
        """g (float[8,10] x) => (float[8,1] y) <int64[1] last = {1}> {
            e = Exp(x) s = ReduceSum(e, last) y = Log(s) }""",
        logits,
    ),
    "a logarithm of a Softmax": (
        "g (float[8,10] x) => (float[8,10] y) { e = Softmax<axis = 1>(x) y = Log(e) }",
        lambda random: 3 * logits(random),
    ),
}
_add("small row", SMALL)


# --- positions weighted by a Softmax ----------------------------------------------------------------------------------

ROWS, WIDTH, SIDE = 4, 256, 16
HEAD = f"float[{ROWS},8] x, float[8,{WIDTH}] w, float[{WIDTH}] at, float[{WIDTH},1] column, float[{WIDTH},1] row"
INTS = f"<int64[1] last = {{1}}, int64[4] image = {{{ROWS}, {WIDTH}, 1, 1}}, int64[2] flat = {{{ROWS}, 1}}, "
INTS += f"int64[4] pixels = {{1, 1, {ROWS}, 1}}, float[4] scales = {{1, 1, 1, 1}}>"
FORMS = {
    "products, summed": ("p = Softmax(h) m = Mul(p, at) y = ReduceSum(m, last)", 1),
    "their mean": ("p = Softmax(h) m = Mul(at, p) y = ReduceMean<axes = [1]>(m)", 1),
    "MatMul": ("p = Softmax(h) y = MatMul(p, column)", 1),
    "Gemm": ("p = Softmax(h) y = Gemm<alpha = 0.5>(p, column)", 1),
    "Einsum": ('p = Softmax(h) e = Einsum<equation = "nc,c->n">(p, at) y = Reshape(e, flat)', 1),
    "Conv": ("p = Softmax(h) i = Reshape(p, image) c = Conv(i, kernel) y = Reshape(c, flat)", 1),
    "coordinates": ("p = Softmax(h) e = MatMul(p, column) d = Div(e, half) y = Sub(d, one)", 1),
    "x and y": ("p = Softmax(h) ex = MatMul(p, column) ey = MatMul(p, row) y = Concat<axis = 1>(ex, ey)", 2),
    "bounded": ("p = Softmax(h) e = MatMul(p, column) y = Clip(e, one)", 1),
    "resized": (
        "p = Softmax(h) e = MatMul(p, column) i = Reshape(e, pixels) r = Resize(i, , scales) y = Reshape(r, flat)",
        1,
    ),
    "a temperature": ("t = Mul(h, one) p = Softmax(t) y = MatMul(p, column)", 1),
}


def weights(peaks: np.ndarray) -> dict[str, np.ndarray]:
    positions = np.arange(WIDTH, dtype=np.float32)
    column, row = positions[:, None] % SIDE, positions[:, None] // SIDE
    kernel = positions.reshape(1, WIDTH, 1, 1)
    given = {"w": peaks, "at": positions, "column": column, "row": row, "kernel": kernel}
    scalars = {"half": SIDE / 2, "one": 1.0}
    return {name: np.asarray(array, np.float32) for name, array in (given | scalars).items()}


def text_of(form: str) -> str:
    nodes, columns = FORMS[form]
    return f"""g ({HEAD}, float[1,{WIDTH},1,1] kernel, float half, float one) => (float[{ROWS},{columns}] y) {INTS}
        {{ h = MatMul(x, w) {nodes} }}"""


def peaks() -> np.ndarray:
    """Rows with two peaks, of which one is higher by less than float16 holds where they are high."""
    found, row = np.zeros((8, WIDTH)), np.arange(8)
    found[row, 3 + row], found[row, WIDTH - 1 - 5 * row] = 400, 400 * (1 + 0.0003)
    return found


def chosen(random: np.random.Generator) -> np.ndarray:
    return np.eye(8, dtype=np.float32)[random.permutation(8)[:ROWS]]


_add("position", {form: (text_of(form), chosen) for form in FORMS}, weights(peaks()))


# --- what becomes of them ---------------------------------------------------------------------------------------------


def model_of(graph: Graph) -> onnx.ModelProto:
    proto = onnx.parser.parse_model(OPSET + graph.text)
    for name, array in graph.weights.items():
        found = [value for value in proto.graph.input if value.name == name]
        for value in found:
            proto.graph.input.remove(value)
            proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return proto


def converted(proto: onnx.ModelProto, feeds: list[Arrays], *pins: str) -> Any:
    return convert(proto, samples=feeds, skip=["slim"], precision=Precision(**EVERYWHERE, node_block_list=pins))


# The rule `variance` keeps these in FP32.
SETTLED = [
    "difference: a deviation from mean squares",
    "difference: a variance of channels",
    "difference: a norm of centred columns",  # half a step of its input moves it further
]
FAILING = [name for name in GRAPHS if name not in SETTLED]


@pytest.mark.parametrize("name", SETTLED)
def test_a_variance_passes_without_pins(name: str) -> None:
    graph = GRAPHS[name]
    proto, feeds = model_of(graph), [{"x": graph.draw(np.random.default_rng(seed))} for seed in range(4)]
    found = converted(proto, feeds[:2])
    assert found.report.check.state == "verified" and not found.report.check.node_block_list
    assert compare(proto, found.model, feeds[2:], locate=False).verdict == "passed"


# The first three in `make test`.
@pytest.mark.parametrize("name", [*FAILING[:2], *first_of(FAILING[2:])])
def test_it_fails_and_passes_with_the_pins_that_are_named(name: str) -> None:
    graph = GRAPHS[name]
    proto, feeds = model_of(graph), [{"x": graph.draw(np.random.default_rng(seed))} for seed in range(4)]
    found = converted(proto, feeds[:2])
    check = found.report.check
    assert check.state == "failed" and check.node_block_list
    assert compare(proto, found.model, feeds[2:], locate=False).verdict == "failed"
    pinned = converted(proto, feeds[:2], *check.node_block_list)
    assert compare(proto, pinned.model, feeds[2:], locate=False).verdict == "passed"
