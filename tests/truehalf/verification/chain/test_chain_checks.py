"""What is checked beside the gates: batches, adversarial pictures; and what must be verified."""

import json
import re
from dataclasses import replace

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
from truehalf.io_spec.in_file import SPEC_KEY
from truehalf.verification.chain import chain


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


def test_metadata_of_the_final_file_that_contradict_fail(tmp_path):
    final = write(tmp_path / "final" / "model.onnx", FP16)
    model, spec = onnx.load(final), SPEC.to_json() | {"class_names": ["bee", "ant", "cat"]}
    onnx.helper.set_model_props(model, {SPEC_KEY: json.dumps(spec)})
    onnx.save(model, final)
    report = verified(tmp_path, final)
    assert report["verdict"] == "failed" and state(report, "metadata")["state"] == "failed"
    expect(state(report, "metadata")["reason"], "metadata-differ", "class_names")
