"""Sums inside nodes against numpy."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from tests.truehalf.calibration.small_graphs import HUGE, parsed
from truehalf.calibration.hazards import reductions
from truehalf.calibration.ranges import Scanner
from truehalf.ir.normalize import InferTypes

GENERATOR = np.random.default_rng(3)
IMAGE = (GENERATOR.standard_normal((2, 4, 6, 5)) * 30 + 7).astype(np.float32)


def layer_norm(x: np.ndarray, axes: tuple[int, ...]) -> float:
    return float(x.astype(np.float64).var(axis=axes).max())


def windows(x: np.ndarray) -> float:
    """Largest sum of |x| over 3x2 windows, one row and column of zeros around."""
    padded = np.pad(np.abs(x).astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    return float(np.lib.stride_tricks.sliding_window_view(padded, (3, 2), (2, 3)).sum(axis=(-1, -2)).max())


def channels(image: np.ndarray, size: int) -> float:
    """The largest sum of squares over `size` neighbouring channels, those before a channel being the fewer."""
    first = range(-((size - 1) // 2), image.shape[1])
    return max(float(np.square(image[:, max(i, 0) : max(i + size, 0)]).sum(axis=1).max()) for i in first)


@pytest.mark.parametrize(
    ("node", "opset", "expected"),
    [
        ("LayerNormalization(x, s5)", 17, layer_norm(IMAGE, (3,))),
        ("LayerNormalization<axis = 2>(x, s65)", 17, layer_norm(IMAGE, (2, 3))),
        ("InstanceNormalization(x, s4, s4)", 9, layer_norm(IMAGE, (2, 3))),
        ("InstanceNormalization(x, s4, s4)", 18, layer_norm(IMAGE, (2, 3))),
        ("GroupNormalization<num_groups = 2>(x, s4, s4)", 21, layer_norm(IMAGE.reshape(2, 2, 2, 6, 5), (2, 3, 4))),
        ("MeanVarianceNormalization(x)", 13, layer_norm(IMAGE, (0, 2, 3))),
        ("RMSNormalization(x, s5)", 23, float(np.square(IMAGE, dtype=np.float64).mean(axis=3).max())),
        ("GlobalAveragePool(x)", 9, np.abs(IMAGE).sum(axis=(2, 3)).max()),
        ("AveragePool<kernel_shape = [3, 2], pads = [1, 1, 1, 1]>(x)", 9, windows(IMAGE)),
        ("AveragePool<kernel_shape = [3, 2], pads = [1, 1, 1, 1]>(x)", 19, windows(IMAGE)),
        ("ReduceMean<axes = [1]>(x)", 9, np.abs(IMAGE).sum(axis=1).max()),
        ("ReduceMean<axes = [1]>(x)", 13, np.abs(IMAGE).sum(axis=1).max()),
        ("ReduceMean(x, last)", 18, np.abs(IMAGE).sum(axis=3).max()),
        ("ReduceL1(x)", 17, np.abs(IMAGE).sum()),
        ("ReduceL2(x, last)", 18, np.square(IMAGE).sum(axis=3).max()),
        ("ReduceLogSumExp(x, last)", 18, HUGE),  # e^100
        ("LpNormalization<axis = 1>(x)", 17, np.square(IMAGE).sum(axis=1).max()),
        ("LpNormalization<p = 1>(x)", 17, np.abs(IMAGE).sum(axis=3).max()),
        ("GlobalLpPool(x)", 17, np.square(IMAGE).sum(axis=(2, 3)).max()),
        ("GlobalLpPool<p = 3>(x)", 17, np.abs(IMAGE.astype(np.float64) ** 3).sum(axis=(2, 3)).max()),
        ("LpPool<kernel_shape = [3, 2], pads = [1, 1, 1, 1], p = 1>(x)", 11, windows(IMAGE)),
        ("LpPool<kernel_shape = [3, 2], pads = [1, 1, 1, 1], dilations = [1, 1]>(x)", 18, windows(IMAGE**2)),
        ("LpPool<kernel_shape = [3, 2], pads = [1, 1, 1, 1], p = 4>(x)", 22, windows(IMAGE**4)),
        ("LRN<size = 3>(x)", 17, channels(IMAGE, 3)),
        ("LRN<size = 9>(x)", 13, channels(IMAGE, 9)),
        ("CumSum(x, last)", 14, np.abs(IMAGE).sum(axis=3).max()),
        ("CumSum<reverse = 1>(x, axis)", 14, np.abs(IMAGE).sum(axis=1).max()),
    ],
)
def test_inner_sums_are_those_of_numpy(node: str, opset: int, expected: float) -> None:
    ones = ", ".join(["1.0"] * 30)
    text = f"""g (float[N,4,6,5] x, int64 axis) => (float y)
        <float[5] s5 = {{{", ".join(["1.0"] * 5)}}}, float[4] s4 = {{1.0, 1.0, 1.0, 1.0}}, float[6,5] s65 = {{{ones}}},
        int64[1] last = {{-1}}> {{ z = {node}  m = ReduceMax<keepdims = 0>(z)  y = Identity(m) }}"""
    ir_version = 10
    model = ir.from_onnx_text(f'<ir_version: {ir_version}, opset_import: ["" : {opset}]>\n{text}')
    InferTypes()(model)
    (found,) = reductions(model)
    (value,) = Scanner(model, [], [found]).run({"x": IMAGE, "axis": np.array(1)}).inner
    assert value == pytest.approx(expected, rel=1e-5)


def test_long_softmax_rows() -> None:
    model = parsed("g (float[N,K] x) => (float[N,K] y) { y = Softmax(x) }")
    x = np.float32(GENERATOR.standard_normal((2, 70000)))
    (value,) = Scanner(model, [], reductions(model)).run({"x": x}).inner
    assert value == pytest.approx(np.exp(x - x.max(axis=1, keepdims=True)).sum(axis=1).max(), rel=1e-4)


def test_inner_sums_of_nothing_and_beyond_float32() -> None:
    model = parsed("g (float[N,4] x) => (float[N,1] y) { y = ReduceSum<axes = [1]>(x) }", 11)
    scanner = Scanner(model, [], reductions(model))
    assert scanner.run({"x": np.zeros((0, 4), np.float32)}).inner == [None]
    assert scanner.run({"x": np.full((1, 4), HUGE, np.float32)}).inner == [HUGE]
