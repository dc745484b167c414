"""Gathers in FP16 sample as well as GridSample in FP16: positions stay FP32, and by that alone.

The rule for indices keeps those FP32 by itself; the fractions, of which the weights are made, stay so as declared.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.measuring.converted import to_fp16
from tests.truehalf.patterns.repairing import parsed, repaired, run
from truehalf.emulation.sessions import EmulatedSession
from truehalf.float16 import KEEP_FLOAT32
from truehalf.ir.model_file import load_model


def sampler(width: int) -> onnx.ModelProto:
    return parsed(
        f"""net (float[n, 8, {width}, {width}] x, float[n, p, q, 2] location) => (float[n, 8, p, q] y)
        <float two = {{2.0}}, float one = {{1.0}}>
        {{ d = Mul (location, two)  grid = Sub (d, one)  y = GridSample (x, grid) }}"""
    )


def error(model: onnx.ModelProto, feed: dict[str, np.ndarray], exact: np.ndarray, folder: Path) -> float:
    """Root mean square of the emulated FP16 error; every node in FP16 that no rule keeps out."""
    onnx.save(model, folder / "fp32.onnx")
    to_fp16(folder / "fp32.onnx", folder / "fp16.onnx", placement="eager")
    return float(np.sqrt(np.mean((EmulatedSession(folder / "fp16.onnx").run(feed)["y"] - exact) ** 2)))


@pytest.mark.parametrize("width", [20, 80])
def test_as_good_as_grid_sample_in_half(width: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    pixels = rng.normal(size=(2, 8, width, width)).astype(np.float16).astype(np.float32)
    feed = {"x": pixels, "location": rng.uniform(size=(2, 300, 4, 2)).astype(np.float32)}
    before = sampler(width)
    after, _ = repaired(before, "grid_sample_gather")
    exact = run(before, feed)[0]
    sampled, gathered = error(before, feed, exact, tmp_path), error(after, feed, exact, tmp_path)
    assert gathered < 1.02 * sampled  # the weights are rounded, too
    half = load_model(tmp_path / "fp16.onnx")
    assert next(node for node in half.graph if node.op_type == "GatherND").outputs[0].dtype.name == "FLOAT16"
    undeclared = onnx.ModelProto.FromString(after.SerializeToString())
    for node in undeclared.graph.node:
        kept = [entry for entry in node.metadata_props if entry.key != KEEP_FLOAT32]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
    assert error(undeclared, feed, exact, tmp_path) > 1.02 * sampled
