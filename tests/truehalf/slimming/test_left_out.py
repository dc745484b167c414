"""Slimming is compared with the source on samples, by `convert` and by the stage; what changes outputs is left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxslim
import pytest

from tests.messages import expect
from tests.truehalf.slimming.test_slim import left_out
from truehalf.api import convert
from truehalf.config.schema import SlimConfig
from truehalf.runtime.ort import Session
from truehalf.slimming.slim import slim

# Pads computed from a shape: pairs of begin and end by axis, reversed. onnxslim's shape inference reverses the values,
# as in a ResNet that was exported from TensorFlow.
PADS = """<ir_version: 8, opset_import: ["" : 17]> g (float[n,1,4,4] x) => (float[n,1,a,b] y)
<int64[1] two = {2}, int64[1] three = {3}, int64[1] zero = {0}, int64[1] minus = {-1}, int64[2] pairs = {-1, 2},
 int64[1] least = {-9223372036854775807}, int64[4] none = {0, 0, 0, 0}>
{
    u = Relu(x)  s = Shape(u)  h = Gather <axis = 0> (s, two)  p = Sub(h, three)
    c = Concat <axis = 0> (zero, p, zero, p, none)  r = Reshape(c, pairs)
    v = Slice(r, minus, least, zero, minus)  t = Transpose <perm = [1, 0]> (v)  q = Reshape(t, minus)
    f = Pad <mode = "edge"> (u, q)  y = MaxPool <kernel_shape = [3, 3], strides = [2, 2]> (f)
}"""
PICTURES = np.random.default_rng(0).normal(size=(4, 1, 4, 4)).astype(np.float32)


def pads(path: Path) -> Path:
    onnx.save(onnx.parser.parse_model(PADS), path)
    return path


def test_convert_slims_without_a_shape_inference_that_changes_pads(tmp_path: Path) -> None:
    found = convert(pads(tmp_path / "m.onnx"), tmp_path / "o.onnx", samples={"x": PICTURES}).report
    assert found.slim is not None and found.check is not None
    left_out(found.slim, "shape_inference")
    assert found.slim.nodes_after < found.slim.nodes_before and found.check.state == "verified"
    (wanted,), (got,) = (Session(tmp_path / name).run({"x": PICTURES}).values() for name in ("m.onnx", "o.onnx"))
    np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-3)


def test_so_does_the_stage(tmp_path: Path) -> None:
    report = slim(pads(tmp_path / "m.onnx"), tmp_path / "o.onnx", check_feeds=[{"x": PICTURES}])
    left_out(report, "shape_inference")
    skipped = SlimConfig(skip_patterns=("shape_inference",))
    assert slim(tmp_path / "m.onnx", tmp_path / "o.onnx", skipped, check_feeds=[{"x": PICTURES}]).left_out == []


def test_convert_says_that_slimming_was_compared_on_no_samples(tmp_path: Path) -> None:
    report = convert(pads(tmp_path / "m.onnx"), tmp_path / "o.onnx").report
    assert report.slim is not None and report.slim.parity["status"] == "not verified"


def test_places_that_rounding_exchanges_are_no_reason_not_to_slim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """20,000 sums sorted, many of which rounding exchanges: rounding an input otherwise is no error."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,64] x) => (float[1,20000] sums, int64[1,20000] places)
    <int64[1] k = {20000}> { s = MatMul(x, w)  sums, places = TopK(s, k) }"""
    model, draw = onnx.parser.parse_model(text), np.random.default_rng(0)
    weight = draw.normal(size=(64, 20000)).astype(np.float32)
    weight[[0, -1]] = np.float32([[1], [-1]])
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    onnx.save(model, tmp_path / "m.onnx")

    def rounded(model: onnx.ModelProto, **_: Any) -> onnx.ModelProto:
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(2**-20), "little"))
        model.graph.node.insert(0, onnx.helper.make_node("Mul", ["x", "little"], ["u"]))
        model.graph.node.insert(1, onnx.helper.make_node("Add", ["x", "u"], ["t"]))
        model.graph.node[2].input[0] = "t"
        return model

    monkeypatch.setattr(onnxslim, "slim", rounded)
    feed = {"x": draw.normal(size=(1, 64)).astype(np.float32)}
    feed["x"][0, [0, -1]] = 1000
    report = slim(tmp_path / "m.onnx", tmp_path / "o.onnx", check_feeds=[feed], repair=())
    assert report.left_out == [] and report.parity["status"] == "not verified"
    expect(report.parity["reason"], "near-ties")


def test_a_model_that_draws_is_slimmed_and_not_verified(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[n,4] x) => (float[n,4] y)
    { i = Identity(x) d = RandomNormalLike(i) y = Add(i, d) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    report = slim(tmp_path / "m.onnx", tmp_path / "o.onnx", check_feeds=[{"x": np.ones((3, 4), np.float32)}])
    assert report.simplified and report.left_out == [] and report.parity["status"] == "not verified"
    expect(report.parity["reason"], "not-comparable")
