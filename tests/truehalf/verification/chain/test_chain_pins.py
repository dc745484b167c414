"""Pins suggested for a file that overflows: found, confirmed on all samples, and not applied."""

import json
from dataclasses import replace

from tests.configurations import composed
from tests.messages import expect
from tests.truehalf.verification.small_detector import FP32, OPTIONS, verified, write
from truehalf.config.validate import validate
from truehalf.verification.pinning.reconversion import Reconversion

AMPLIFIED = FP32.replace(
    "logits = Add (logits_moved, logits_bias)",
    "logits_added = Add (logits_moved, logits_bias)\n    [amplify] logits_up = Mul (logits_added, up)\n"
    "    [reduce] logits = Mul (logits_up, down)",
)


def suggested(folder, **options):
    """A conversion without rules of a graph that overflows in FP16, verified with verify.suggest."""
    precision = validate(composed("experiment=overflow_naive")).precision
    conversion = Reconversion(precision, None, None)
    fp32, final = write(folder / "slim" / "model.onnx", AMPLIFIED, gain=2.0**15), folder / "final" / "model.onnx"
    final.parent.mkdir()
    conversion.convert(fp32, final, [])
    wanted = replace(OPTIONS, **{"suggest": True} | options)
    return verified(folder, final, fp32=fp32, options=wanted, conversion=conversion)


def test_pins_are_found_confirmed_and_not_applied(tmp_path):
    report = suggested(tmp_path)
    found = report["suggestion"]
    assert report["verdict"] == "failed" and found["status"] == "found" and found["verdict"] == "passed"
    expect(found["sentence"], "pins-hold", len(found["node_block_list"]), "none can be left out")
    assert "^amplify$" in found["selectors"] and "^amplify$" in found["node_block_list"]
    assert json.loads((tmp_path / "out" / "verdict.json").read_text())["suggestion"] == found
    precision = validate(composed("experiment=overflow_naive")).precision
    pinned = tmp_path / "pinned.onnx"
    names = [entry.strip("^$") for entry in found["node_block_list"]]
    Reconversion(precision, None, None).convert(tmp_path / "slim" / "model.onnx", pinned, names)
    assert verified(tmp_path / "again", pinned)["verdict"] == "passed"


def test_without_the_wish_no_pins_are_searched(tmp_path):
    assert suggested(tmp_path, suggest=False)["suggestion"] is None
