"""The report of a calibration, and samples for a batch that the file fixes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser

from truehalf.calibration.calibrate import calibrate
from truehalf.calibration.calibrate_report import calibration_report
from truehalf.data.samples import Feeds, Sample, Samples
from truehalf.ir.facts import fixed_batch
from truehalf.ir.model_file import load_model


def write(path: Path, text: str) -> Path:
    onnx.save(onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 17]>\n{text}'), path)
    return path


def test_a_fixed_batch_is_filled_with_the_last_sample(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", "g (float[3,2] x) => (float[3,2] y) { y = Mul(x, x) }")
    x = np.float32([[1, 2], [-9, 3], [0, 600], [4, 4]])
    samples = Samples("abcd", lambda position: Sample("abcd"[position], {"x": x[position]}))
    entry = calibrate(path, Feeds(samples, fixed_batch(load_model(path)) or 1))["tensors"]["y"]
    assert (entry["absmax"], entry["sample"], entry["min"], entry["elements"]) == (360000, "a", 0, 12)


def test_the_report_lists_the_largest_tensors_with_their_nodes(tmp_path: Path) -> None:
    text = """g (float[1,2] x) => (float[1,2] y) <float[1] k = {1000.0}, float[1] inf = {-inf}>
        { [thousandfold] a = Mul(x, k) [millionfold] b = Mul(a, k) [mask] m = Add(x, inf) e = Exp(m) y = Add(e, x) }"""
    path = write(tmp_path / "m.onnx", text)
    ranges = calibrate(path, [{"x": np.float32([[1, -0.5]])}, {"x": np.float32([[0.25, 2]])}])
    content = calibration_report(ranges, load_model(path))
    assert (content.samples, content.tensors, content.tensors_nonfinite) == (2, 6, 1)
    assert (content.tensors_above_512, content.tensors_above_65504) == (2, 1)
    first, second = content.largest[:2]
    assert first == {"tensor": "b", "node": "millionfold", "sample": "1", "absmax": 2e6}
    assert (second["node"], second["absmax"]) == ("thousandfold", 2000)
