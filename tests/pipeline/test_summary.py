"""The table at the end of a run."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.summary import print_summary
from tests.messages import expect

PARAMS: dict[str, Any] = {
    "model": {"name": "mine"},
    "decoder": {"name": "none"},
    "precision": {"dtype": "fp16", "method": "autocast"},
}
VERIFY: dict[str, Any] = {
    **{"status": "done", "verdict": "passed", "evaluation": "emulated-fp16", "not_verified": []},
    **{"top1_agreement": 0.9375, "tensor_error": 0.0021, "ap50_95": None, "matched_fraction": None},
    "stages": {"fp16": {"matched_fraction": None, "top1_agreement": 0.9375}},
}


def printed(capsys: pytest.CaptureFixture[str], params: dict[str, Any], reports: dict[str, Any]) -> str:
    print_summary(params, reports, None)
    return capsys.readouterr().out


def test_the_title_names_the_method_and_no_decoder_where_there_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    expect(printed(capsys, PARAMS, {}), None, "mine · fp16", "autocast")
    convert = PARAMS | {"decoder": {"name": "dfine"}, "precision": {"dtype": "fp16", "method": "convert"}}
    said = printed(capsys, convert, {})
    expect(said, None, "mine · dfine · fp16")
    assert "convert" not in said


def test_a_classifier_is_said_to_agree_and_by_how_much_its_outputs_differ(capsys: pytest.CaptureFixture[str]) -> None:
    said = printed(capsys, PARAMS, {"verify": VERIFY, "fp16": {"status": "done"}})
    assert re.findall(r"[\d.]+ %", said) == ["93.75 %"] * 2, "in the row of fp16, and below the table"
    expect(row(said, "fp16")[2], None, "93.75 %")
    expect(said, None, "0.0021")
    assert "AP50" not in said


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
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("failed: "))
    expect(line, None, "calibrate", error["message"] if own else "reports/error.json")
    assert own or error["message"] not in done.stdout


def test_a_stage_without_a_row_is_named_under_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    print_summary(PARAMS, {}, None, {"stage": "inputs", "message": "data.folder: no such folder"})
    said = capsys.readouterr().out
    expect(said, None, "inputs", "data.folder: no such folder")
    assert row(said, "trace")[1] == "not run"
