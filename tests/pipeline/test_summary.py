"""The table at the end of a run."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.summary import print_summary

PARAMS: dict[str, Any] = {
    "model": {"name": "mine"},
    "decoder": {"name": "none"},
    "precision": {"dtype": "fp16", "method": "autocast"},
}
VERIFY: dict[str, Any] = {
    **{"status": "done", "verdict": "passed", "evaluation": "emulated-fp16", "not_verified": []},
    **{"top1_agreement": 0.9375, "tensor_error": 0.0021, "ap50_95": None, "matched_fraction": None},
    "hops": {"fp16": {"matched_fraction": None, "top1_agreement": 0.9375}},
}


def printed(capsys: pytest.CaptureFixture[str], params: dict[str, Any], reports: dict[str, Any]) -> str:
    print_summary(params, reports, None)
    return capsys.readouterr().out


def test_the_title_names_the_method_and_no_decoder_where_there_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert "mine · fp16 by autocast" in printed(capsys, PARAMS, {})
    convert = PARAMS | {"decoder": {"name": "dfine"}, "precision": {"dtype": "fp16", "method": "convert"}}
    assert "mine · dfine · fp16 " in printed(capsys, convert, {})


def test_a_classifier_is_said_to_agree_and_by_how_much_its_outputs_differ(capsys: pytest.CaptureFixture[str]) -> None:
    said = printed(capsys, PARAMS, {"verify": VERIFY, "fp16": {"status": "done"}})
    assert "93.75 % of the samples have the FP32 best class (top 1)" in said
    assert "outputs differ by at most 0.0021 of their largest value" in said and "93.75 % same class" in said
    assert "AP50" not in said and "found again" not in said


def row(text: str, stage: str) -> list[str]:
    (line,) = (line for line in text.splitlines() if line.startswith(f"│ {stage} "))
    return [cell.strip() for cell in line.strip("│").split("│")]


@pytest.mark.parametrize("own", [True, False])
def test_the_stage_that_ended_the_run_is_shown_as_failed_with_its_reason(own: bool, tmp_path: Path) -> None:
    (tmp_path / "dvc.yaml").touch()
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(PARAMS))
    (tmp_path / "reports").mkdir()
    for stage in ("trace", "slim", "calibrate"):  # that of calibrate is an earlier run's
        (tmp_path / f"reports/{stage}.json").write_text(json.dumps({"status": "done", "seconds": 1}))
    error = {"stage": "calibrate" if own else "slim", "message": "the reference has NaN [images]"}
    (tmp_path / "reports/error.json").write_text(json.dumps(error))
    command = [sys.executable, "-m", "pipeline.summary", "--failed-stage", "calibrate"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    status = {stage: row(done.stdout, stage)[1] for stage in ("trace", "slim", "calibrate", "fp16")}
    assert status == {"trace": "done", "slim": "done", "calibrate": "failed", "fp16": "not run"}
    said = "the reference has NaN [images]" if own else "reports/error.json does not say why"
    assert f"failed: calibrate: {said}" in done.stdout


def test_a_stage_without_a_row_is_named_under_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    print_summary(PARAMS, {}, None, {"stage": "inputs", "message": "data.folder: no such folder"})
    said = capsys.readouterr().out
    assert "failed: inputs: data.folder: no such folder" in said and row(said, "trace")[1] == "not run"
