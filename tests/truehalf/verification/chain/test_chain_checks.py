"""What is checked beside the gates: batches, adversarial pictures, accumulation; and what must be verified."""

import json
import re
from dataclasses import replace

import numpy as np
import onnx
import pytest

from tests.messages import expect
from tests.truehalf.verification.small_detector import (
    FP16,
    FP32,
    OPTIONS,
    SPEC,
    state,
    unlabelled,
    verified,
    write,
)
from truehalf.codes import uncoded
from truehalf.config.verification import Evaluation
from truehalf.io_spec.in_file import SPEC_KEY
from truehalf.verification.chain import chain

# Subtracts the mean of the batch: right for one sample at a time, wrong for two different ones.
MIXING = FP32.replace(
    "means = ReduceMean <axes = [2, 3], keepdims = 0> (images)",
    "own = ReduceMean <axes = [2, 3], keepdims = 0> (images)\n    of_batch = ReduceMean <axes = [0]> (own)\n"
    "    lost = Sub (own, of_batch)\n    strong = Mul (lost, gain)\n    means = Add (own, strong)",
)
# Adds 1e-6 / (1 - largest * smallest value): infinite where a picture is all white, next to nothing elsewhere.
GAIN = {"gain": np.array(300, np.float32)}


def test_a_good_file_is_verified_at_every_batch_and_on_adversarial_pictures(tmp_path):
    report = verified(tmp_path, write(tmp_path / "final" / "model.onnx", FP16))
    assert {item["check"]: item["state"] for item in report["checks"]} == {
        **dict.fromkeys(
            ("file", "detections", "average_precision", "nonfinite", "batch", "adversarial", "reaction"), "verified"
        ),
        "accumulation": "not verified",
    }
    for name in chain.MEASURED_STAGES:
        sizes = ["1"] if name in ("trace", "slim") else ["1", "8"]  # of the file that ships, whose bytes fp16 has
        assert report["stages"][name]["batches"]["sizes"] == dict.fromkeys(sizes, "verified")
        assert report["stages"][name]["adversarial"]["state"] == "verified"
    (said,) = [item for item in report["not_verified"] if "batch" in item]
    expect(said, None, "1, 5, 8")


def test_a_file_that_mixes_the_samples_of_a_batch_fails(tmp_path):
    final = write(tmp_path / "final" / "model.onnx", MIXING, extra=GAIN)
    one = replace(OPTIONS, batch=1)  # compared one by one, nothing shows
    report = verified(tmp_path, final, options=one)
    assert report["matched_fraction"] == 1.0 and report["verdict"] == "failed"
    assert state(report, "batch")["state"] == "failed"
    expect(state(report, "batch")["reason"], None, "batch 8:")
    assert any(reason.startswith("batch 8:") for reason in report["reasons"])
    assert report["place"] is None, "a file without FP16 has no place to look for"


@pytest.mark.parametrize("name", ["average_precision", "accumulation", "batch"])
def test_what_must_be_verified_and_is_not_fails_and_says_why(tmp_path, name):
    final = write(tmp_path / "final" / "model.onnx", FP16.replace("batch", "5"))
    fp32 = write(tmp_path / "slim" / "model.onnx", FP32)
    free = verified(tmp_path / "free", final, samples=unlabelled(), fp32=fp32)
    assert free["verdict"] == "passed" and state(free, name)["state"] == "not verified"
    report = verified(tmp_path, final, samples=unlabelled(), fp32=fp32, options=replace(OPTIONS, require=[name]))
    assert report["verdict"] == "failed" and report["status"] == "failed"
    (said,) = [reason for reason in report["reasons"] if "verify.require" in reason]
    expect(said, "required-open", name, uncoded(state(report, name)["reason"]))
    assert state(report, name)["reason"] and report["place"] is None, "no gate failed: there is no place to look for"


def test_what_must_be_verified_and_is_passes(tmp_path):
    required = replace(OPTIONS, require=["detections", "average_precision", "batch", "adversarial"])
    assert verified(tmp_path, write(tmp_path / "m" / "model.onnx", FP16), options=required)["verdict"] == "passed"


@pytest.mark.parametrize(
    ("size", "gain"), [(5, 1.0), (1, 1.0), pytest.param(20, 1.0, marks=pytest.mark.slow), (5, 2.0**15)]
)
def test_a_fixed_batch_is_fed_as_it_asks(tmp_path, size, gain):
    free = verified(tmp_path / "free", write(tmp_path / "free" / "final" / "model.onnx", FP16, gain))
    fp32 = write(tmp_path / "slim" / "model.onnx", FP32.replace("batch", str(size)))
    final = write(tmp_path / "final" / "model.onnx", FP16.replace("batch", str(size)), gain)
    report = verified(tmp_path, final, fp32=fp32)
    assert report["samples"] == 12 and report["verdict"] == free["verdict"]
    assert (
        report["max_abs_error"] == free["max_abs_error"] and report["nan"] + report["inf"] == free["nan"] + free["inf"]
    )
    batch = next(check for check in report["checks"] if check["check"] == "batch")
    assert batch["state"] == "not verified"
    expect(batch["reason"], None, f"batch {', '.join(str(other) for other in (1, 8) if other != size)}:", size)
    (said,) = [item for item in report["not_verified"] if "batch" in item and item != batch["reason"]]
    assert re.findall(r"\d+", said) == [str(size)]
    if gain > 1:
        assert report["place"]["suspects"][0]["node"] == "amplify"
        expect(report["place"]["sentence"], None, f"{size} times")


def test_nodes_whose_inner_sums_are_not_rounded_leave_accumulation_unverified(tmp_path):
    pessimistic = replace(OPTIONS, evaluation=Evaluation.emulated_fp16_pessimistic)
    good = verified(tmp_path / "good", write(tmp_path / "final" / "model.onnx", FP16), options=pessimistic)
    assert state(good, "accumulation")["state"] == "verified"
    pool = FP16.replace(
        "half_means = Cast <to = 10> (means)",
        "half_raw = Cast <to = 10> (means)\n    half_four = Unsqueeze (half_raw, axes)\n"
        "    [p] half_near = AveragePool <kernel_shape = [1, 1], ceil_mode = 1> (half_four)\n"
        "    half_means = Squeeze (half_near, axes)",
    )
    final = write(tmp_path / "pool" / "model.onnx", pool, extra={"axes": np.array([2, 3])})
    report = verified(tmp_path, final, options=pessimistic)
    assert report["verdict"] == "passed" and state(report, "accumulation")["state"] == "not verified"
    expect(state(report, "accumulation")["reason"], "sums-not-rounded", 1, "p:")
    assert state(report, "accumulation")["reason"] in report["not_verified"]
    required = verified(tmp_path, final, options=replace(pessimistic, require=["accumulation"]))
    assert required["verdict"] == "failed"


def test_metadata_of_the_final_file_that_contradict_fail(tmp_path):
    final = write(tmp_path / "final" / "model.onnx", FP16)
    model, spec = onnx.load(final), SPEC.to_json() | {"class_names": ["bee", "ant", "cat"]}
    onnx.helper.set_model_props(model, {SPEC_KEY: json.dumps(spec)})
    onnx.save(model, final)
    report = verified(tmp_path, final)
    assert report["verdict"] == "failed" and state(report, "metadata")["state"] == "failed"
    expect(state(report, "metadata")["reason"], "metadata-differ", "class_names")
