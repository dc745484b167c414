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
    "a logit as a quotient": (
        """g (float[4,50] x) => (float[4,50] y) <float o = {1}> {
            p = Sigmoid(x) q = Sub(o, p) d = Div(p, q) y = Log(d) }""",
        between(-8, 8),
    ),
    "compared as well as subtracted": (
        """g (float[4,50] x) => (float[4,50] y) <float s = {1.7}> { h = Mul(x, s)
            m = ReduceMean<axes = [-1]>(h) d = Sub(h, m) n = Neg(d) c = Less(m, h) y = Where(c, d, n) }""",
        offset(4, 50, by=50, spread=0.01),
    ),
    "the fraction of a large number": (
        "g (float[4,50] x) => (float[4,50] y) <float s = {37.3}> { h = Mul(x, s) q = Floor(h) y = Sub(h, q) }",
        between(8, 12),
    ),
    "an angle": ("g (float[4,50] x) => (float[4,50] y) { c = Cos(x) y = Acos(c) }", between(0.001, 0.2)),
    "LayerNormalization": (
        """g (float[8,64] x) => (float[8,64] y) <int64[1] n = {64}> { s = ConstantOfShape<value = float[1] {1}>(n)
            y = LayerNormalization(x, s) }""",
        offset(8, 64, by=300),
    ),
}
_add("difference", DIFFERENCES)


# --- phases -----------------------------------------------------------------------------------------------------------

FREQUENCIES = (100.0 ** -(np.arange(8) / 8)).astype(np.float32)


def positions(random: np.random.Generator) -> np.ndarray:
    return (np.arange(200) + random.integers(60, 140)).astype(np.float32)


PHASES: dict[str, tuple[str, Draw]] = {
    "rotary, a matrix product, both halves": (
        """g (float[200,1] x, float[1,8] f) => (float[1,200,16] y) <int64[1] first = {0}> {
            p = MatMul(x, f) c = Concat<axis = -1>(p, p) u = Unsqueeze(c, first) y = Cos(u) }""",
        lambda random: positions(random)[:, None],
    ),
    "positions that are counted": (
        """g (float[200] x, float[1,8] f) => (float[200,8] y) <int64[1] last = {1}, int64 axis = {0}, float two = {2}> {
            a = CumSum(x, axis) b = Mul(a, two) u = Unsqueeze(b, last) p = Mul(u, f) y = Sin(p) }""",
        lambda random: np.full(200, random.uniform(0.9, 1.1), np.float32),
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
    "LpNormalization": ("g (float[8,64] x) => (float[8,64] y) { y = LpNormalization<axis = 1>(x) }", rows),
    "a root of a sum of squares": (
        """g (float[8,64] x) => (float[8] y) <int64[1] last = {1}, float h = {0.5}> {
            a = Mul(x, x) s = ReduceSum<keepdims = 0>(a, last) y = Pow(s, h) }""",
        lambda random: rows(random, 1e-4),
    ),
    "a logarithm of a sum of exponentials": (
        """g (float[8,10] x) => (float[8,1] y) <int64[1] last = {1}> {
            e = Exp(x) s = ReduceSum(e, last) y = Log(s) }""",
        logits,
    ),
}
_add("small row", SMALL)


# --- positions weighted by a Softmax ----------------------------------------------------------------------------------

ROWS, WIDTH, SIDE = 4, 256, 16
HEAD = f"float[{ROWS},8] x, float[8,{WIDTH}] w, float[{WIDTH},1] column, float[{WIDTH},1] row"
INTS = f"<int64[4] image = {{{ROWS}, {WIDTH}, 1, 1}}, int64[2] flat = {{{ROWS}, 1}}>"
FORMS = {
    "MatMul": ("p = Softmax(h) y = MatMul(p, column)", 1),
    "Conv": ("p = Softmax(h) i = Reshape(p, image) c = Conv(i, kernel) y = Reshape(c, flat)", 1),
    "x and y": ("p = Softmax(h) ex = MatMul(p, column) ey = MatMul(p, row) y = Concat<axis = 1>(ex, ey)", 2),
    "a temperature": ("t = Mul(h, one) p = Softmax(t) y = MatMul(p, column)", 1),
}


def weights(peaks: np.ndarray) -> dict[str, np.ndarray]:
    positions = np.arange(WIDTH, dtype=np.float32)
    column, row = positions[:, None] % SIDE, positions[:, None] // SIDE
    kernel = positions.reshape(1, WIDTH, 1, 1)
    given = {"w": peaks, "column": column, "row": row, "kernel": kernel}
    return {name: np.asarray(array, np.float32) for name, array in (given | {"one": 1.0}).items()}


def text_of(form: str) -> str:
    nodes, columns = FORMS[form]
    return f"""g ({HEAD}, float[1,{WIDTH},1,1] kernel, float one) => (float[{ROWS},{columns}] y) {INTS}
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


def converted(proto: onnx.ModelProto, feeds: list[Arrays], **options: Any) -> Any:
    return convert(proto, samples=feeds, skip=["slim"], precision=Precision(**EVERYWHERE, **options))


# The rule `variance` keeps these in FP32.
SETTLED = [
    "difference: a deviation from mean squares",
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
def test_it_fails_and_is_delivered_with_pins_with_which_it_passes(name: str) -> None:
    graph = GRAPHS[name]
    proto, feeds = model_of(graph), [{"x": graph.draw(np.random.default_rng(seed))} for seed in range(4)]
    unpinned = converted(proto, feeds[:2], measured=False)
    assert unpinned.report.check.state == "failed" and unpinned.report.check.node_block_list
    assert compare(proto, unpinned.model, feeds[2:], locate=False).verdict == "failed"
    pinned = converted(proto, feeds[:2])
    assert pinned.report.check.state == "verified" and pinned.report.check.pinned
    assert compare(proto, pinned.model, feeds[2:], locate=False).verdict == "passed"
