"""Sums inside nodes against numpy."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from tests.truehalf.calibration.small_graphs import HUGE, parsed
from truehalf.calibration.ranges import Scanner
from truehalf.calibration.sums import reductions
from truehalf.ir.normalize import InferTypes

GENERATOR = np.random.default_rng(3)
IMAGE = (GENERATOR.standard_normal((2, 4, 6, 5)) * 30 + 7).astype(np.float32)


def layer_norm(x: np.ndarray, axes: tuple[int, ...]) -> float:
    return float(x.astype(np.float64).var(axis=axes).max())


@pytest.mark.parametrize(
    ("node", "opset", "expected"),
    [
        ("LayerNormalization(x, s5)", 17, layer_norm(IMAGE, (3,))),
        ("LayerNormalization<axis = 2>(x, s65)", 17, layer_norm(IMAGE, (2, 3))),
        ("InstanceNormalization(x, s4, s4)", 9, layer_norm(IMAGE, (2, 3))),
        ("InstanceNormalization(x, s4, s4)", 18, layer_norm(IMAGE, (2, 3))),
        ("GroupNormalization<num_groups = 2>(x, s4, s4)", 21, layer_norm(IMAGE.reshape(2, 2, 2, 6, 5), (2, 3, 4))),
        ("RMSNormalization(x, s5)", 23, float(np.square(IMAGE, dtype=np.float64).mean(axis=3).max())),
        ("GlobalAveragePool(x)", 9, np.abs(IMAGE).sum(axis=(2, 3)).max()),
        ("ReduceMean<axes = [1]>(x)", 9, np.abs(IMAGE).sum(axis=1).max()),
        ("ReduceMean<axes = [1]>(x)", 13, np.abs(IMAGE).sum(axis=1).max()),
        ("ReduceMean(x, last)", 18, np.abs(IMAGE).sum(axis=3).max()),
        ("ReduceL1(x)", 17, np.abs(IMAGE).sum()),
        ("ReduceL2(x, last)", 18, np.square(IMAGE).sum(axis=3).max()),
    ],
)
def test_inner_sums_are_those_of_numpy(node: str, opset: int, expected: float) -> None:
    ones = ", ".join(["1.0"] * 30)
    text = f"""g (float[N,4,6,5] x) => (float y)
        <float[5] s5 = {{{", ".join(["1.0"] * 5)}}}, float[4] s4 = {{1.0, 1.0, 1.0, 1.0}}, float[6,5] s65 = {{{ones}}},
        int64[1] last = {{-1}}> {{ z = {node}  m = ReduceMax<keepdims = 0>(z)  y = Identity(m) }}"""
    ir_version = 10
    model = ir.from_onnx_text(f'<ir_version: {ir_version}, opset_import: ["" : {opset}]>\n{text}')
    InferTypes()(model)
    (found,) = reductions(model)
    (value,) = Scanner(model, [], [found]).run({"x": IMAGE}).inner
    assert value == pytest.approx(expected, rel=1e-5)


def test_inner_sums_of_nothing_and_beyond_float32() -> None:
    model = parsed("g (float[N,4] x) => (float[N,1] y) { y = ReduceSum<axes = [1]>(x) }", 11)
    scanner = Scanner(model, [], reductions(model))
    assert scanner.run({"x": np.zeros((0, 4), np.float32)}).inner == [None]
    assert scanner.run({"x": np.full((1, 4), HUGE, np.float32)}).inner == [HUGE]
