"""Convert, check, pin, convert: a file that passes where pins make one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser

from truehalf import Precision, compare
from truehalf.config.precision import Precision as Options
from truehalf.data.model_samples import model_samples
from truehalf.ir.model_file import load_model
from truehalf.verification.chain.quick_check import Checked, convert_checked
from truehalf.verification.pinning.reconversion import Reconversion

OPTIONS = Precision(placement="eager", data_max=None, epsilons=False)
LOST = "[big] a = Mul(x, k) [add] b = Add(x, a) [sub] y = Sub(b, a)"
FINE = "[act] y = Tanh(x)"
RNG = np.random.default_rng(0)
FEEDS = [{"x": RNG.uniform(0.5, 1, (4, 64)).astype(np.float32)} for _ in range(4)]


def checked(folder: Path, body: str, precision: Options = OPTIONS) -> Checked:
    head = '<ir_version: 8, opset_import: ["" : 17]> g (float[4,64] x) => (float[4,64] y) <float k = {300}>'
    text = f"{head} {{ {body} }}"
    path = folder / "fp32.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    samples = model_samples(FEEDS[:2], load_model(path), None, None)
    return convert_checked(path, path, folder / "fp16.onnx", samples, Reconversion(precision, None, None))


def test_a_file_that_fails_is_converted_again_with_the_pins_that_hold(tmp_path: Path) -> None:
    found = checked(tmp_path, LOST)
    assert found.check.state == "verified" and "^add$" in found.pins
    assert compare(tmp_path / "fp32.onnx", tmp_path / "fp16.onnx", FEEDS[2:], locate=False).verdict == "passed"
    kept = {row["node"]: row["precision"] for row in found.made.decisions}
    assert kept["add"] == kept["sub"] == "fp32"


def test_a_good_file_is_converted_once(tmp_path: Path) -> None:
    found = checked(tmp_path, FINE)
    assert found.check.state == "verified" and found.pins == ()
