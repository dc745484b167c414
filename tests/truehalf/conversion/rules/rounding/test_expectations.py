"""Positions weighted by a Softmax: two peaks of nearly one height share the weight otherwise in float16."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from tests.truehalf.calibration.small_graphs import parsed
from tests.truehalf.conversion.rules.rounding.losses import TOLERANCE, Arrays, losses
from truehalf.calibration.rounding.expectations import expectation
from truehalf.ir.normalize import PREPARE

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


def two_peaks(height: float) -> tuple[Arrays, np.ndarray]:
    """Rows with two peaks, of which one is higher by less than float16 holds where they are high."""
    peaks = np.zeros((8, WIDTH))
    peaks[:, 3], peaks[:, WIDTH - 1] = height, height * (1 + 0.0003)
    return {"x": np.eye(ROWS, 8, dtype=np.float32)}, peaks


@pytest.mark.parametrize("form", FORMS)
def test_it_stays_float32_where_logits_are_large(form: str) -> None:
    feed, peaks = two_peaks(100.0)
    found = losses(text_of(form), feed, weights(peaks))
    assert found.before > TOLERANCE / 2
    assert found.after <= TOLERANCE / 2
    assert set(found.kept.values()) == {"cancellation"}
    assert any(name.startswith("Softmax") for name in found.kept)


@pytest.mark.parametrize("form", [form for form in FORMS if form != "coordinates"])  # which are nearly 0 in between
def test_it_is_float16_where_they_are_small(form: str) -> None:
    feed, peaks = two_peaks(4.0)
    found = losses(text_of(form), feed, weights(peaks))
    assert not found.kept
    assert found.before <= TOLERANCE / 2


@pytest.mark.parametrize("form", ["MatMul", "products, summed", "coordinates"])
@pytest.mark.parametrize("seed", range(6))
def test_other_samples_are_within_the_tolerance(form: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    feeds = [{"x": random.normal(size=(ROWS, 8)).astype(np.float32)} for _ in range(2)]
    peaks = random.normal(size=(8, WIDTH)) * random.choice([1, 3, 10, 30]) / 8**0.5
    assert losses(text_of(form), feeds[0], weights(peaks), other=feeds[1]).after <= TOLERANCE


@pytest.mark.parametrize(
    "nodes",
    [
        "p = Softmax(h) y = ReduceSum(p, last)",  # 1
        "p = Softmax(h) v = MatMul(x, w) m = Mul(p, v) y = ReduceSum(m, last)",  # an attention: values are computed
        "p = Sigmoid(h) y = MatMul(p, column)",
        "p = Softmax(h) e = MatMul(p, column) y = Sigmoid(e)",
        "p = Softmax(h) e = MatMul(p, column) d = MatMul(p, row) y = Mul(e, d)",
        "p = Softmax(h) m = Mul(p, at) y = Reshape(m, flat)",  # nothing is added up
    ],
)
def test_what_is_none(nodes: str) -> None:
    model = parsed(f"g ({HEAD}) => (float[{ROWS},n] y) {INTS} {{ h = MatMul(x, w) {nodes} }}", 17)
    for value in list(model.graph.inputs)[1:]:
        model.graph.inputs.remove(value)
        value.const_value = ir.tensor(np.ones([int(side) for side in value.shape or ()], np.float32), name=value.name)
        model.graph.register_initializer(value)
    PREPARE(model)
    found = {node.name for node in model.graph if expectation(node)}
    assert found <= {"ReduceSum_y"} and (not found or "ReduceSum(p" in nodes)


@pytest.mark.parametrize("form", ["MatMul", "x and y", "a temperature"])
def test_samples_without_two_peaks_do_not_hide_it(form: str) -> None:
    """One peak everywhere is exact in float16; the sample that is compared has two."""
    feed, peaks = two_peaks(100.0)
    only_one = peaks.copy()
    only_one[:ROWS] = peaks[:ROWS]
    only_one[4:, WIDTH - 1] = 0
    one = {"x": np.roll(np.eye(ROWS, 8, dtype=np.float32), 4, axis=1)}
    found = losses(text_of(form), one, weights(only_one), other=feed)
    assert found.before > TOLERANCE / 2
    assert found.after <= TOLERANCE / 2
