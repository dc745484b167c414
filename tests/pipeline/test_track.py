"""Tracking: the same names in every run, nothing twice, nothing lost."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.track import NOT_LOGGED, log_collected, track
from pipeline.tracking.record import NO_EFFECT, collected, flat_params, in_effect, metrics, name_of, run_name
from pipeline.workspace import ABOUT_VARIABLE
from tests.configurations import composed
from tests.messages import expect
from tests.pipeline.empty_store import with_empty_store
from tests.pipeline.test_engine import BUILT

VERIFY = {
    "stage": "verify",
    "status": "done",
    "verdict": "passed",
    "ap50": 0.95,
    "ap50_fp32": 0.951,
    "max_abs_error": {"logits": 0.1, "boxes": 0.01},
    "seconds": 3.0,
}


def scratch_run(folder: Path, *overrides: str, verify: dict[str, Any] | None = None) -> Path:
    (folder / "reports").mkdir(parents=True, exist_ok=True)
    (folder / "params.yaml").write_text(yaml.safe_dump(composed(*overrides)))
    (folder / "reports/verify.json").write_text(json.dumps(verify or VERIFY))
    return with_empty_store(folder)


def runs(folder: Path) -> list[tuple[str, str]]:
    with sqlite3.connect(folder / "mlflow.db") as database:
        return database.execute("select name, status from runs where lifecycle_stage = 'active'").fetchall()


def test_a_run_is_logged_once(tmp_path: Path) -> None:
    (scratch_run(tmp_path) / "mlflow.db").unlink()
    first, second = track(tmp_path), track(tmp_path)
    assert first["status"] == "logged" and second["status"] == "already logged"
    assert first["run_id"] == second["run_id"]
    assert runs(tmp_path) == [("ltdetr_nano-dfine-fp16", "FINISHED")]


def test_a_run_that_was_cut_off_is_logged_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch_run(tmp_path)
    with monkeypatch.context() as broken:
        broken.setattr("mlflow.log_artifact", lambda *_: 1 / 0)
        assert track(tmp_path)["status"] == NOT_LOGGED
    assert track(tmp_path)["status"] == "logged"
    assert runs(tmp_path) == [("ltdetr_nano-dfine-fp16", "FINISHED")]


def test_a_failed_verdict_and_a_crash_are_failed_runs(tmp_path: Path) -> None:
    scratch_run(tmp_path, verify=VERIFY | {"status": "failed", "verdict": "failed"})
    track(tmp_path)
    track(tmp_path, failed_stage="slim")
    assert [status for _, status in runs(tmp_path)] == ["FAILED", "FAILED"]


def test_a_server_that_does_not_answer_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch_run(tmp_path, "tracking=remote")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    expect(track(tmp_path)["message"], "not-logged", "MLFLOW_TRACKING_URI")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://someone:secret@127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    outcome = track(tmp_path)
    assert outcome["status"] == NOT_LOGGED
    name = name_of(composed("tracking=remote"))
    expect(outcome["message"], "not-logged", "127.0.0.1:9", f"python -m pipeline.track {name}")
    assert "secret" not in json.dumps(outcome)


def test_a_run_that_was_not_logged_outlives_the_workspaces_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    names = []
    for decoder in ("dfine", "rtdetrv2"):
        scratch_run(tmp_path, "tracking=remote", f"decoder={decoder}")
        model = tmp_path / "artifacts/cast_cleanup/model.onnx"
        model.parent.mkdir(parents=True, exist_ok=True)
        model.write_text(decoder)
        (tmp_path / "reports/cast_cleanup.json").write_text(json.dumps({"stage": "cast_cleanup"}))
        assert track(tmp_path)["status"] == NOT_LOGGED
        names.append(name_of(composed("tracking=remote", f"decoder={decoder}")))
    kept = [collected(tmp_path / "runs" / name) for name in names]
    assert [record.params["decoder"]["name"] for record in kept] == ["dfine", "rtdetrv2"]
    assert [record.model_files[0].read_text() for record in kept] == ["dfine", "rtdetrv2"]
    assert log_collected(tmp_path, names[0]) == 1 and collected(tmp_path / "runs" / names[0]).model_files
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    monkeypatch.setenv("MLFLOW_ARTIFACT_ROOT", str(tmp_path / "mlartifacts"))
    for name in names:
        assert log_collected(tmp_path, name) == 0
        assert not collected(tmp_path / "runs" / name).model_files, "MLflow has it"
    assert sorted(runs(tmp_path)) == [("ltdetr_nano-dfine-fp16", "FINISHED"), ("ltdetr_nano-rtdetrv2-fp16", "FINISHED")]
    assert log_collected(tmp_path, names[0]) == 0 and track(tmp_path)["status"] == "already logged"
    assert len(runs(tmp_path)) == 2


def test_a_name_that_no_run_has_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert log_collected(scratch_run(tmp_path), "nobody") == 2
    expect(capsys.readouterr().err, "file-missing", "nobody")


def test_a_crashed_run_is_kept_without_what_an_earlier_one_left(tmp_path: Path) -> None:
    scratch_run(tmp_path)
    (tmp_path / "reports/trace.json").write_text("{}")
    track(tmp_path, failed_stage="verify")
    kept = collected(tmp_path / "runs" / name_of(composed()))
    assert kept.failed and list(kept.reports) == ["trace"] and not (kept.folder / "reports/verify.json").exists()


def test_jobs_of_a_sweep_are_children_of_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def parents() -> list[tuple[str, int]]:
        counted = "select value, count(*) as n from tags where key = 'mlflow.parentRunId' group by value"
        with sqlite3.connect(tmp_path / "mlflow.db") as database:
            return database.execute(f"select name, n from runs join ({counted}) on run_uuid = value").fetchall()

    scratch_run(tmp_path, "seed=1")
    assert track(tmp_path)["status"] == "logged"
    for sweep in ("one", "two"):
        monkeypatch.setenv(ABOUT_VARIABLE, json.dumps({"sweep": sweep}))
        for seed in (1, 2):
            scratch_run(tmp_path, f"seed={seed}")
            assert track(tmp_path)["status"] == ("logged" if (sweep, seed) == ("one", 2) else "already logged")
    assert parents() == [("one", 2)], "a run from before joins a sweep, and stays in it"
    assert ("one", "FINISHED") in runs(tmp_path) and len(runs(tmp_path)) == 3


def test_keys_without_effect_in_fp32_do_not_differ(tmp_path: Path) -> None:
    a = in_effect(flat_params(composed("precision=fp32", "precision.data_max=100")))
    b = in_effect(flat_params(composed("precision=fp32")))
    assert a == b and a["precision.data_max"] == NO_EFFECT and a["precision.dtype"] == "fp32"
    assert flat_params(composed()) == in_effect(flat_params(composed()))


def test_what_only_a_conversion_reads_has_no_effect_where_fp16_is_traced() -> None:
    params = composed("precision.method=half")
    flat = in_effect(flat_params(params))
    for key in ("precision.data_max", "precision.op_block_list", "model.fp32_pins.op_block_list"):
        assert flat[key] == NO_EFFECT, key
    assert flat["precision.keep_io_types"] == "true" and flat["precision.method"] == "half"
    assert run_name(params) == f"{run_name(composed())}-half"
    assert run_name(composed("precision.method=half", "precision=fp32")) == run_name(composed("precision=fp32"))


def test_mlflow_sees_two_precisions_differ_in_nothing_else() -> None:
    """Its compare view chooses the first three keys that differ, by name, and an unlike word in each would fill it."""
    runs = [flat_params(composed(f"precision={name}")) for name in ("fp16", "fp32")]
    assert {key for key in runs[0] if runs[0][key] != runs[1].get(key)} == {"precision.dtype"}
    assert runs[0]["precision.data_max"] == "512.0"


def test_metric_names_are_stable_and_missing_numbers_are_left_out() -> None:
    found = metrics({"verify": VERIFY | {"ap50_95": None}, "fp16": {"seconds": 2, "model": {"nodes": 5}}})
    assert found["accuracy/ap50"] == 0.95 and found["accuracy/max_abs_error/logits"] == 0.1
    assert found["seconds/fp16"] == 2.0 and found["nodes/fp16"] == 5.0
    assert "accuracy/ap50_95" not in found


STAGE = {
    "ap50_95": 0.9,
    "box_error_px_p99": 0.2,
    "score_error_p99": 0.01,
    "tensor_error": 0.001,
    "matched_fraction": 1.0,
}


@pytest.mark.parametrize("stage", ["trace", "slim", "fp16", "cast_cleanup", "engine"])
@pytest.mark.parametrize("absent", sorted(STAGE))
def test_every_stage_has_its_errors_under_the_same_names(stage: str, absent: str) -> None:
    numbers = STAGE | {absent: None, "max_abs_error": {"boxes": 0.03}, "evaluation": "fp32-cpu"}
    reports = (
        {"engine": {"parity": numbers}} if stage == "engine" else {"verify": VERIFY | {"stages": {stage: numbers}}}
    )
    found = {name: value for name, value in metrics(reports).items() if name.startswith("accuracy_by_stage/")}
    expected = {name: value for name, value in STAGE.items() if name != absent} | {"max_abs_error/boxes": 0.03}
    assert found == {f"accuracy_by_stage/{stage}/{name}": value for name, value in expected.items()}


def test_metrics_of_accuracy_come_first() -> None:
    reports = {"verify": VERIFY | {"stages": {"fp16": STAGE}}, "cast_cleanup": {"seconds": 1, "casts_before": 3}}
    groups = [name.split("/")[0] for name in sorted(metrics(reports | {"engine": BUILT}))]
    assert list(dict.fromkeys(groups))[:2] == ["accuracy", "accuracy_by_stage"] and "engine" in groups


def test_the_engine_is_tracked_in_numbers_and_words(tmp_path: Path) -> None:
    scratch_run(tmp_path)
    (tmp_path / "reports/engine.json").write_text(json.dumps({"stage": "engine"} | BUILT))
    assert track(tmp_path)["status"] == "logged"
    with sqlite3.connect(tmp_path / "mlflow.db") as database:
        numbers = dict(database.execute("select key, value from latest_metrics").fetchall())
        words = dict(database.execute("select key, value from tags").fetchall())
    assert numbers["accuracy_by_stage/engine/max_abs_error/logits"] == 0.1
    assert numbers["engine/p50_ms/profile0_opt"] == 1.5 and numbers["engine/half_layers_fraction"] == 0.95
    assert (words["engine"], words["engine_backend"], words["engine_parity"]) == ("built", "tensorrt", "verified")


def test_a_failed_engine_is_a_failed_run(tmp_path: Path) -> None:
    scratch_run(tmp_path)
    engine = BUILT | {"status": "failed", "reason": "NaN"}
    (tmp_path / "reports/engine.json").write_text(json.dumps({"stage": "engine"} | engine))
    assert track(tmp_path)["status"] == "logged"
    assert [status for _, status in runs(tmp_path)] == ["FAILED"]
