"""A small detector verified: the verdict on its final file, whole and broken in known ways, and what is written."""

import json
from dataclasses import replace

import numpy as np
import pytest

from tests.messages import expect
from tests.truehalf.verification.small_detector import (
    FP16,
    FP32,
    OPTIONS,
    SPEC,
    Detector,
    labelled,
    saturated,
    state,
    unlabelled,
    verified,
    worst,
    write,
)
from truehalf.codes import codes_in
from truehalf.files import write_json
from truehalf.ir.model_forms import ModelFile
from truehalf.verification.chain import chain, stage
from truehalf.verification.chain.reference import freeze


def test_a_good_fp16_file_passes_under_emulation(tmp_path):
    report = verified(tmp_path, write(tmp_path / "final" / "model.onnx", FP16))
    assert report["status"] == "done" and report["verdict"] == "passed" and report["reasons"] == []
    assert report["evaluation"] == "emulated-fp16" and report["samples"] == 12
    assert report["matched"] == report["reference"] == 36 and report["extra"] == 0
    assert report["ap50_fp32"] == pytest.approx(1.0) and report["ap50_95_drop"] == pytest.approx(0.0)
    assert 1e-4 < report["max_abs_error"]["logits"] < 0.02, "FP16 rounding must show, and stay small"
    assert list(report["stages"]) == ["trace", "slim", "fp16", "cast_cleanup", "engine"]
    measured = list(report["stages"].values())[:4]
    assert [stage["evaluation"] for stage in measured] == ["fp32-cpu"] * 2 + ["emulated-fp16"] * 2
    assert report["stages"]["engine"]["state"] == "not verified" and report["stages"]["engine"]["reason"]
    assert report["stages"]["slim"]["max_abs_error"]["logits"] < 1e-5
    for name in ("box_error_px_p99", "score_error_p99"):
        assert report["stages"]["cast_cleanup"][name] == report[name] > report["stages"]["slim"][name]
    written = {path.name for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert written >= {"verdict.json", "details.json", "graph.json", "sample_1.svg"}
    details = json.loads((tmp_path / "out" / "details.json").read_text())
    assert len(details["samples"]) == 12 and details["images"][0]["file"] == "plots/sample_1.svg"


def test_overflow_fails_and_names_the_node(tmp_path):
    report = verified(tmp_path, write(tmp_path / "final" / "model.onnx", FP16, gain=2.0**15))
    assert report["status"] == "failed" and report["verdict"] == "failed"
    assert report["nan"] + report["inf"] > 0 and report["place"]["suspects"][0]["node"] == "amplify"
    expect(report["place"]["sentence"], None, "'amplify' (Mul)", 65504)
    bad = worst(tmp_path, "nonfinite_max")
    assert len(bad) == 3 and bad[0]["sample"].startswith("made/")


def test_a_file_without_fp16_runs_on_the_cpu_provider(tmp_path):
    report = verified(tmp_path, write(tmp_path / "final" / "model.onnx", FP32))
    assert report["verdict"] == "passed" and report["evaluation"] == "fp32-cpu"
    assert not any("FP16" in item for item in report["not_verified"])


def test_without_names_and_labels_the_model_is_its_own_measure(tmp_path):
    final = write(tmp_path / "final" / "model.onnx", FP16)
    report = verified(tmp_path, final, samples=unlabelled(), spec=replace(SPEC, class_names=()))
    assert report["self_ap50"] == pytest.approx(1.0) and report["ap50"] is None


def test_untrained_weights_are_not_verified_never_passed(tmp_path):
    report = verified(tmp_path, write(tmp_path / "final" / "model.onnx", FP16), spec=replace(SPEC, trained=False))
    assert report["verdict"] == "not verified" and report["status"] == "done"
    assert report["matched_fraction"] is None and report["ap50_95"] is None
    assert "weights-random" in codes_in("\n".join(report["not_verified"]))


@pytest.mark.parametrize("count", [2, 3, 5, 12, 13])
def test_without_labels_a_file_that_finds_the_same_passes_and_says_what_was_not_measured(tmp_path, count):
    report = verified(tmp_path, write(tmp_path / "final" / "model.onnx", FP16), samples=unlabelled(count))
    assert report["verdict"] == "passed" and report["reasons"] == [] and report["matched_fraction"] == 1.0
    assert report["ap50_95"] is None and state(report, "average_precision")["state"] == "not verified"
    (said,) = [each for each in report["not_verified"] if "no-labels" in codes_in(each)]
    expect(said, "no-labels", "average precision", count)


@pytest.mark.parametrize("required", [False, True])
def test_a_reference_that_finds_no_true_box_verifies_no_average_precision(tmp_path, required):
    corner = np.array([[0, 0, 2, 2]], np.float32)
    elsewhere = [replace(sample, boxes=corner.repeat(len(sample.labels), axis=0)) for sample in labelled()]
    options = replace(OPTIONS, require=["average_precision"] if required else [])
    report = verified(tmp_path, write(tmp_path / "final" / "model.onnx", FP16), samples=elsewhere, options=options)
    assert report["verdict"] == ("failed" if required else "not verified")
    assert report["ap50_fp32"] == report["ap50"] == 0 and report["ap50_95_drop"] is None
    check = state(report, "average_precision")
    assert check["state"] == "not verified" and report["matched_fraction"] == 1.0
    facts = ["FP32", "AP50 0.0000", "model.outputs (format, normalized)", "model.classes", "model.preprocessing"]
    expect(check["reason"], None, *facts)
    assert any(item.endswith(check["reason"]) for item in report["not_verified"])


def test_earlier_stages_see_a_subset_and_the_final_file_all(tmp_path, monkeypatch):
    monkeypatch.setattr(chain, "SUBSET", 4)
    report = verified(tmp_path, write(tmp_path / "final" / "model.onnx", FP16))
    measured = [report["stages"][name]["samples"] for name in chain.MEASURED_STAGES]
    assert measured == [4, 4, 12, 12], "fp16 is the same file as the final one, and not measured twice"
    (said,) = [item for item in report["not_verified"] if item.startswith("trace, slim:")]
    expect(said, None, 4, 12)


def test_a_verification_of_the_first_samples_is_called_one(tmp_path):
    final = write(tmp_path / "final" / "model.onnx", FP16)
    report = verified(tmp_path, final, labelled(15), options=replace(OPTIONS, first_samples=12))
    assert report["verdict"] == "passed" and report["samples"] == 12
    (line,) = [item for item in report["not_verified"] if "first-samples" in codes_in(item)]
    expect(line, "first-samples", 12, 15)
    states = {name: stage.get("samples", stage.get("state")) for name, stage in report["stages"].items()}
    assert states == dict.fromkeys(report["stages"], "not verified") | {chain.FINAL: 12}


def test_what_was_measured_of_the_fp32_files_before_is_taken_and_is_the_same(tmp_path):
    final = write(tmp_path / "final" / "model.onnx", FP16)
    anew = verified(tmp_path, final)
    path = tmp_path / "slim" / "model.onnx"
    reference = freeze(Detector(), labelled(), SPEC, OPTIONS.batch)
    judge = stage.Judge(reference, saturated(), OPTIONS).beside(ModelFile(path))
    write_json(tmp_path / "measured.json", judge.measured([path]))
    kept = stage.measured_with(replace(OPTIONS, first_samples=2, pictures=9), tmp_path / "measured.json")
    assert list(kept) == [ModelFile(path).digest], "what the page shows changes nothing that is measured"
    assert stage.measured_with(replace(OPTIONS, iou_threshold=0.8), tmp_path / "measured.json") == {}
    taken = verified(tmp_path, final, fp32=path, measured=kept)
    assert taken["stages"] == anew["stages"] and taken["verdict"] == anew["verdict"] == "passed"
    (kept_of_file,) = kept.values()
    kept_of_file["ap50"] = 0.25
    told = verified(tmp_path, final, fp32=path, measured=kept)
    assert told["stages"]["trace"]["ap50"] == told["stages"]["slim"]["ap50"] == 0.25, "it runs no more"
    assert told["stages"]["cast_cleanup"] == anew["stages"]["cast_cleanup"]
