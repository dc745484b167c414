"""Where a failed check goes wrong: the place, and a search that itself ends with an error."""

import json

import numpy as np
import pytest

from tests.messages import expect
from tests.truehalf.verification.small_detector import (
    BOXES,
    FP16,
    FP32,
    LOGITS,
    TO_BOXES,
    TO_LOGITS,
    state,
    verified,
    write,
)
from truehalf.errors import StageError

# Adds 6e-2 times the smallest value of a picture: through 600000, which FP16 does not hold, where it is all white.
ROUNDABOUT = FP32.replace(
    "logits = Add (logits_moved, logits_bias)",
    "low = ReduceMin <axes = [1, 2, 3], keepdims = 1> (images)\n    low_flat = Reshape (low, flat_shape)\n"
    "    far = Mul (low_flat, big)\n    [too_far] farther = Mul (far, ten)\n    near = Mul (farther, tiny)\n"
    "    logits_sum = Add (logits_moved, logits_bias)\n    logits = Add (logits_sum, near)",
)
ROUNDABOUT_FP16 = ROUNDABOUT.replace("(low, flat_shape)", "(half_low, flat_shape)")
ROUNDABOUT_FP16 = ROUNDABOUT_FP16.replace("    low_flat =", "    half_low = Cast <to = 10> (low)\n    low_flat =")
ROUNDABOUT_FP16 = ROUNDABOUT_FP16.replace("= Add (logits_sum, near)", "= Add (logits_sum, near_single)").replace(
    "    logits_sum =", "    near_single = Cast <to = 1> (near)\n    logits_sum ="
)
SMALL = {"flat_shape": np.array([-1, 1, 1])}


def roundabout(folder):
    """The FP32 file, and one that overflows on the white picture alone."""
    half = {name: np.array(x, np.float16) for name, x in (("big", 6e4), ("ten", 10), ("tiny", 1e-7))}
    single = {name: value.astype(np.float32) for name, value in half.items()}
    weights = {"to_logits": TO_LOGITS, "logits_bias": LOGITS, "to_boxes": TO_BOXES, "boxes_bias": BOXES}
    fp32 = write(folder / "slim" / "model.onnx", ROUNDABOUT, extra=single | SMALL)
    return fp32, write(folder / "final" / "model.onnx", ROUNDABOUT_FP16, extra=weights | half | SMALL)


def test_a_failed_adversarial_picture_is_looked_into(tmp_path):
    fp32, final = roundabout(tmp_path)
    report = verified(tmp_path, final, fp32=fp32)
    assert report["verdict"] == "failed" and state(report, "adversarial")["state"] == "failed"
    found = json.loads((tmp_path / "out" / "verdict.json").read_text())["findings"]
    assert {each["state"] for each in found if "gate" in each} == {"verified"}
    assert report["place"]["sample"] == "adversarial/white"
    assert report["place"]["suspects"][0]["node"] == "too_far"
    expect(report["place"]["sentence"], None, "'too_far'")


@pytest.mark.parametrize(
    ("error", "code"), [(StageError("not-comparable", "x"), "not-comparable"), (IndexError("row 7"), "not-searched")]
)
def test_a_search_that_ends_with_an_error_takes_no_verdict_away(tmp_path, monkeypatch, error, code):
    def fails(*_):
        raise error

    monkeypatch.setattr("truehalf.verification.chain.chain.place_of", fails)
    report = verified(tmp_path, write(tmp_path / "final" / "model.onnx", FP16, gain=2.0**15))
    written = json.loads((tmp_path / "out" / "verdict.json").read_text())
    assert report["verdict"] == written["verdict"] == "failed" and report["place"] is None
    (said,) = [item for item in written["not_verified"] if str(error) in item]
    expect(said, code)
