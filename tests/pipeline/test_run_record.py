"""The record of a run: one verdict, its reasons, and everything that was not verified."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.run_record import (
    CRASHED,
    FAILED,
    NOT_VERIFIED,
    PASSED,
    Run,
    flat_params,
)
from tests.configurations import composed
from tests.messages import expect

UNVERIFIED = {"status": "done", "seconds": 1.0, "parity": {"status": "not verified", "reason": "random weights"}}
REPORTS: dict[str, Any] = {
    "trace": UNVERIFIED,
    "fp16": {"status": "done", "warnings": ["node_block_list: x matches no node"]},
    "verify": {"status": "done", "verdict": "not verified", "not_verified": ["detections: none"]},
    "engine": {"status": "built", "not_verified": ["the engine's outputs"], "tensorrt": "11", "engine_mb": 1.0},
}
BROKEN = {"status": "failed", "verdict": "failed", "reasons": ["AP fell", "NaN"]}
DONE = {"verify": {"status": "done", "verdict": "passed"}, "engine": {"status": "planned", "reason": "no GPU"}}


def run_of(reports: dict[str, Any], **params: Any) -> Run:
    return Run(Path("nowhere"), params, reports)


def test_every_stage_is_heard() -> None:
    of_trace, *others = run_of(REPORTS).not_verified
    expect(of_trace, None, "trace", "random weights")
    assert others == ["detections: none", "the engine's outputs"]
    assert run_of(REPORTS).warnings == ["node_block_list: x matches no node"]
    (item,) = run_of({}).not_verified
    expect(item, "not-run", "verify")
    assert run_of({}).warnings == []


def test_calibration_on_noise_is_warned_of_before_anything_else() -> None:
    noise = {"calibrate": {"status": "done", "warnings": ["calibrated on noise"]}}
    assert run_of(REPORTS | noise).warnings == ["calibrated on noise", "node_block_list: x matches no node"]


def test_the_engines_own_caveat_replaces_that_of_verify() -> None:
    verify = {"not_verified": ["the TensorRT engine: this stage judges the ONNX file", "batch sizes other than 1"]}
    assert run_of({"verify": verify}).not_verified == verify["not_verified"]
    engine = {"status": "planned", "reason": "no GPU", "not_verified": ["the engine: none was built: no GPU"]}
    assert run_of({"verify": verify, "engine": engine}).not_verified == [
        "batch sizes other than 1",
        "the engine: none was built: no GPU",
    ]
    verified = {"status": "built", "parity": {"state": "verified"}, "not_verified": []}
    assert run_of({"verify": verify, "engine": verified}).not_verified == ["batch sizes other than 1"]


def test_a_verified_engine_meets_a_requirement() -> None:
    required = {"require": ["engine"]}
    assert not run_of({"engine": {"status": "built", "parity": {"state": "verified"}}}, verify=required).unmet
    open_parity = {"state": "not verified", "reason": "no labels"}
    (line,) = run_of({"engine": {"status": "built", "parity": open_parity}}, verify=required).unmet
    expect(line, None, "verify.require", "engine", "no labels")


@pytest.mark.parametrize(
    ("changes", "verdict", "reasons"),
    [
        ({}, PASSED, []),
        ({"verify": {"status": "done", "verdict": "not verified", "reasons": ["a"]}}, NOT_VERIFIED, ["a"]),
        ({"verify": BROKEN}, FAILED, ["verify: AP fell", "verify: NaN"]),
        ({"engine": {"status": "failed", "reason": "no GPU"}}, FAILED, ["engine: no GPU"]),
        ({"engine": {"status": "failed", "reason": "a; b", "reasons": ["a", "b"]}}, FAILED, ["engine: a", "engine: b"]),
    ],
)
def test_one_verdict_follows_from_verify_and_engine(changes: Any, verdict: str, reasons: list[str]) -> None:
    run = run_of(DONE | changes)
    assert (run.verdict, run.reasons, run.has_failed) == (verdict, reasons, verdict == FAILED)


@pytest.mark.parametrize("missing", ["verify", "engine"])
def test_a_missing_report_is_a_failure(missing: str) -> None:
    run = run_of({stage: report for stage, report in DONE.items() if stage != missing})
    (reason,) = run.reasons
    expect(reason, "file-missing", missing, f"reports/{missing}.json")
    assert run.verdict == FAILED


def test_an_open_requirement_is_a_failure() -> None:
    reports = DONE | {
        "trace": {"parity": {"status": "not verified", "reason": "random weights"}},
        "slim": {"parity": {"status": "verified"}},
    }
    run = run_of(reports, verify={"require": ["engine", "trace", "slim", "batch"]})
    of_engine, of_trace = run.reasons
    expect(of_engine, "no-engine", "verify.require", "engine", "no GPU")
    expect(of_trace, None, "verify.require", "trace", "random weights")
    assert run.verdict == FAILED
    assert run_of(reports, verify={"require": []}).verdict == PASSED


def test_a_crashed_run_has_no_report_from_the_crash_on(tmp_path: Path) -> None:
    (tmp_path / "reports").mkdir()
    for stage in ("inputs", "trace", "slim", "verify", "engine"):
        (tmp_path / f"reports/{stage}.json").write_text(json.dumps({"status": "done", "verdict": "passed"}))
    assert Run.read(tmp_path).verdict == PASSED
    (tmp_path / "reports/error.json").write_text(json.dumps({"stage": "fp16", "message": "no space left"}))
    run = Run.read(tmp_path)
    assert (run.verdict, run.reasons, list(run.json)) == (CRASHED, ["no space left"], ["inputs", "trace", "slim"])
    (tmp_path / "reports/error.json").write_text(json.dumps({"stage": "unknown", "message": "killed"}))
    assert not Run.read(tmp_path).json


def test_broken_and_missing_files_are_left_out(tmp_path: Path) -> None:
    assert Run.read(tmp_path) == Run(tmp_path, {}, {})
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports/verify.json").write_text('{"verdict": "pas')
    (tmp_path / "params.yaml").write_text("- no mapping")
    assert Run.read(tmp_path) == Run(tmp_path, {}, {})


def test_the_names_of_a_run() -> None:
    def run(*overrides: str) -> Run:
        return Run(Path(), composed(*overrides))

    assert run().name == "ltdetr_nano-dfine-fp16"
    assert run("precision.method=half").name == "ltdetr_nano-dfine-fp16-half"
    assert run("precision.method=half", "precision=fp32").name == "ltdetr_nano-dfine-fp32"
    assert run().slug == run("tracking.experiment=other").slug != run("seed=1").slug
    assert run().slug == Run(Path(), composed() | {"composed": {"overrides": ["seed=0"]}}).slug


def test_mlflow_sees_two_precisions_differ_in_nothing_else() -> None:
    """Its compare view chooses the first three keys that differ, by name, and an unlike word in each would fill it."""
    runs = [flat_params(composed(f"precision={name}")) for name in ("fp16", "fp32")]
    assert {key for key in runs[0] if runs[0][key] != runs[1].get(key)} == {"precision.dtype"}
    assert yaml.safe_load(runs[0]["precision.data_max"]) is None
