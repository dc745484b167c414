"""Tracking: the same names in every run, nothing twice, nothing lost."""

import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import mlflow
import pytest
import yaml

from pipeline import track as track_module
from pipeline.run_record import STAGES, Run
from pipeline.track import NOT_LOGGED, PAGE, SOURCE_TAG, Outcome, description, display_name, previous_run
from pipeline.workspace import PROJECT_VARIABLE, SWEEP_VARIABLE
from tests.configurations import composed
from tests.messages import expect
from tests.pipeline.empty_store import with_empty_store
from tests.truehalf.report.test_engine import BUILT

VERIFY = {
    "stage": "verify",
    "status": "done",
    "verdict": "passed",
    "ap50": 0.95,
    "ap50_fp32": 0.951,
    "max_abs_error": {"logits": 0.1, "boxes": 0.01},
    "seconds": 3.0,
}


PLANNED = {"stage": "engine", "status": "planned", "reason": "no GPU"}
MODEL = {"stage": "inputs", "status": "done", "model": {"sha256": "a" * 64}}


def scratch_run(folder: Path, *overrides: str, verify: dict[str, Any] | None = None) -> Path:
    """A workspace whose run has reached the end, with these overrides."""
    (folder / "reports").mkdir(parents=True, exist_ok=True)
    options = [each for each in overrides if not each.startswith("experiment=")]
    params = composed(*options) | {"composed": {"overrides": list(overrides)}}
    (folder / "params.yaml").write_text(yaml.safe_dump(params))
    (folder / "reports/verify.json").write_text(json.dumps(verify or VERIFY))
    for report in (PLANNED, MODEL):
        (folder / f"reports/{report['stage']}.json").write_text(json.dumps(report))
    return with_empty_store(folder)


def track(folder: Path) -> Outcome:
    return track_module.track(Run.read(folder))


def crash(folder: Path, stage: str) -> None:
    (folder / "reports/error.json").write_text(json.dumps({"stage": stage, "message": "no memory"}))


def log_later(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """`python -m pipeline.track NAME` in a project."""
    (folder / "dvc.yaml").touch()
    with monkeypatch.context() as here:
        here.chdir(folder)
        here.setattr("sys.argv", ["pipeline.track", name])
        return track_module.main()


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
    crash(tmp_path, "slim")
    track(tmp_path)
    assert [status for _, status in runs(tmp_path)] == ["FAILED", "FAILED"]


def test_a_server_that_does_not_answer_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch_run(tmp_path, "tracking=remote")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    expect(track(tmp_path)["message"], "not-logged", "MLFLOW_TRACKING_URI")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://someone:secret@127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    outcome = track(tmp_path)
    assert outcome["status"] == NOT_LOGGED
    name = Run(Path(), composed("tracking=remote")).slug
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
        names.append(Run(Path(), composed("tracking=remote", f"decoder={decoder}")).slug)
    kept = [Run.read(tmp_path / "runs" / name) for name in names]
    assert [record.params["decoder"]["name"] for record in kept] == ["dfine", "rtdetrv2"]
    assert [record.model_files[0].read_text() for record in kept] == ["dfine", "rtdetrv2"]
    assert log_later(tmp_path, names[0], monkeypatch) == 1 and Run.read(tmp_path / "runs" / names[0]).model_files
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    monkeypatch.setenv("MLFLOW_ARTIFACT_ROOT", str(tmp_path / "mlartifacts"))
    for name in names:
        assert log_later(tmp_path, name, monkeypatch) == 0
        assert not Run.read(tmp_path / "runs" / name).model_files, "MLflow has it"
    assert sorted(runs(tmp_path)) == [("ltdetr_nano-dfine-fp16", "FINISHED"), ("ltdetr_nano-rtdetrv2-fp16", "FINISHED")]
    assert log_later(tmp_path, names[0], monkeypatch) == 0 and track(tmp_path)["status"] == "already logged"
    assert len(runs(tmp_path)) == 2


def test_a_name_that_no_run_has_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert log_later(scratch_run(tmp_path), "nobody", monkeypatch) == 2
    expect(capsys.readouterr().err, "file-missing", "nobody")


def test_a_crashed_run_is_kept_without_what_an_earlier_one_left(tmp_path: Path) -> None:
    scratch_run(tmp_path)
    (tmp_path / "reports/trace.json").write_text("{}")
    crash(tmp_path, "verify")
    track(tmp_path)
    kept = Run.read(tmp_path / "runs" / Run(Path(), composed()).slug)
    assert kept.verdict == "crashed" and list(kept.json) == ["inputs", "trace"]
    assert not (kept.folder / "reports/verify.json").exists()


def test_jobs_of_a_sweep_are_children_of_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def parents() -> list[tuple[str, int]]:
        counted = "select value, count(*) as n from tags where key = 'mlflow.parentRunId' group by value"
        with sqlite3.connect(tmp_path / "mlflow.db") as database:
            return database.execute(f"select name, n from runs join ({counted}) on run_uuid = value").fetchall()

    scratch_run(tmp_path, "seed=1")
    assert track(tmp_path)["status"] == "logged"
    for sweep in ("one", "two"):
        monkeypatch.setenv(SWEEP_VARIABLE, sweep)
        for seed in (1, 2):
            scratch_run(tmp_path, f"seed={seed}")
            assert track(tmp_path)["status"] == ("logged" if (sweep, seed) == ("one", 2) else "already logged")
    assert parents() == [("one", 2)], "a run from before joins a sweep, and stays in it"
    assert ("one", "FINISHED") in runs(tmp_path) and len(runs(tmp_path)) == 3


def test_the_engine_is_tracked_in_numbers_and_words(tmp_path: Path) -> None:
    scratch_run(tmp_path)
    report = {"stage": "engine"} | BUILT | {"plan": {"backend": "tensorrt"}}
    (tmp_path / "reports/engine.json").write_text(json.dumps(report))
    assert track(tmp_path)["status"] == "logged"
    with sqlite3.connect(tmp_path / "mlflow.db") as database:
        numbers = dict(database.execute("select key, value from latest_metrics").fetchall())
        words = dict(database.execute("select key, value from tags").fetchall())
    assert numbers["p50_ms"] == 1.5 and numbers["fp16_compiled"] == 0.95
    assert (words["engine"], words["engine_backend"], words["engine_parity"]) == ("built", "tensorrt", "verified")


def test_a_failed_engine_is_a_failed_run(tmp_path: Path) -> None:
    scratch_run(tmp_path)
    engine = BUILT | {"status": "failed", "reason": "NaN"}
    (tmp_path / "reports/engine.json").write_text(json.dumps({"stage": "engine"} | engine))
    assert track(tmp_path)["status"] == "logged"
    assert [status for _, status in runs(tmp_path)] == ["FAILED"]


# --- names and descriptions -------------------------------------------------------------------------------------------

NAME, IMAGES = "ltdetr_nano-dfine-fp16", "data.folder=/somewhere/images"


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        ([], NAME),
        (["precision=fp32", "precision.data_max=128"], "ltdetr_nano-dfine-fp32"),
        (["precision.data_max=128.0", "tracking.register=true"], f"{NAME}-data_max=128.0"),
        (["experiment=cautious", "seed=7"], f"{NAME}-experiment=cautious-seed=7"),
        (["precision.op_block_list=[Softmax,Exp]"], f"{NAME}-op_block_list=Softmax,Exp"),
        (["precision.node_block_list=[/a/long/name/of/a/node,/b]"], f"{NAME}-node_block_list=2 entries"),
        (["trace.atol=0.1", "slim.atol=0.1"], f"{NAME}-trace.atol=0.1-slim.atol=0.1"),
        (["model=onnx", "model.checkpoint=a/b.onnx", IMAGES], "onnx-fp16-model.checkpoint=b.onnx-data.folder=images"),
        (["model=onnx", "model.outputs=[{name: y, kind: classes}]", "model.classes=[a,b]"], "onnx-fp16"),
        (["precision.method=half", "verify=smoke"], f"{NAME}-half-verify=smoke"),
        (
            ["verify.batch=1", "verify.pictures=0", "seed=1", "repair=none"],
            f"{NAME}-verify.batch=1-verify.pictures=0-seed=1-+1",
        ),
    ],
)
def test_a_name_has_the_overrides_of_the_command_line(overrides: list[str], name: str, tmp_path: Path) -> None:
    assert display_name(Run.read(scratch_run(tmp_path, *overrides))) == name


@pytest.mark.parametrize("engine", ["failed", "planned", "compiled", "skipped", "built"])
def test_a_description_has_one_verdict_and_no_empty_part(tmp_path: Path, engine: str) -> None:
    scratch_run(tmp_path)
    (tmp_path / "reports/engine.json").write_text(json.dumps({"stage": "engine", "status": engine}))
    text = description(Run.read(tmp_path))
    assert text.startswith("**failed**" if engine == "failed" else "**passed**") and f"engine: {engine}" in text
    assert "Overrides" not in text and PAGE not in text


def whole_run(folder: Path, *overrides: str) -> Path:
    """A workspace with reports of every stage, and a page; the run took 100 s."""
    scratch_run(folder, *overrides, verify=VERIFY | {"ap50_95": 0.8123, "ap50_95_fp32": 0.8125})
    for stage in ("inputs", *STAGES):
        report = folder / f"reports/{stage}.json"
        if not report.exists():
            report.write_text(json.dumps({"stage": stage}))
        os.utime(report, (1_700_000_050.5, 1_700_000_050.5))
    (folder / "reports/report.html").write_text("<title>page</title>")
    os.utime(folder / "reports/inputs.json", (1_700_000_000.5, 1_700_000_000.5))
    os.utime(folder / "reports/trace.json", (1_600_000_000, 1_600_000_000))  # of an earlier run, and unchanged
    os.utime(folder / "reports/report.html", (1_700_000_100.5, 1_700_000_100.5))
    return folder


def test_a_run_has_its_own_times_a_description_and_the_page_first(tmp_path: Path) -> None:
    outcome = track(whole_run(tmp_path, "precision.data_max=128"))
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    run = client.get_run(outcome["run_id"])
    assert (run.info.start_time, run.info.end_time) == (1_700_000_000_500, 1_700_000_100_500)
    assert (run.info.run_name, run.info.status) == (f"{NAME}-data_max=128", "FINISHED")
    note = run.data.tags["mlflow.note.content"]
    for fact in ("passed", "0.8123", "0.8125", "precision.data_max=128", PAGE):
        assert fact in note, fact
    assert next(file.path for file in client.list_artifacts(outcome["run_id"])) == PAGE


def test_the_run_that_trained_the_model_is_linked_also_later(tmp_path: Path) -> None:
    client = mlflow.MlflowClient(f"sqlite:///{with_empty_store(tmp_path) / 'mlflow.db'}")
    trained = client.create_run(client.create_experiment("training"), run_name="epoch 12").info
    outcome = track(scratch_run(tmp_path))
    for source, fact in (
        (trained.run_id, f"/experiments/{trained.experiment_id}/runs/{trained.run_id}"),
        ("0" * 32,) * 2,
    ):
        again = track(scratch_run(tmp_path, f"tracking.source_run_id='{source}'"))
        assert again["run_id"] == outcome["run_id"] and again["status"] == "already logged"
        tags = client.get_run(outcome["run_id"]).data.tags
        assert tags[SOURCE_TAG] == source and fact in tags["mlflow.note.content"]
    assert "epoch 12" not in tags["mlflow.note.content"]


# --- the run before ---------------------------------------------------------------------------------------------------


def test_the_run_before_is_the_last_other_one_of_the_same_model_and_decoder(tmp_path: Path) -> None:
    def before(*overrides: str, model: str = "a") -> str | None:
        scratch_run(tmp_path, *overrides)
        content = MODEL | {"model": {"sha256": model * 64}}
        (tmp_path / "reports/inputs.json").write_text(json.dumps(content))
        run = Run.read(tmp_path)
        earlier = previous_run(run)
        track_module.track(run)
        return (earlier.params["precision"]["data_max"] or "none") if earlier else None

    assert before() is None
    assert before() is None, "the same run again"
    assert before("precision.data_max=128.0") == "none"
    assert before("precision.data_max=64.0") == 128.0
    assert before("precision.data_max=32.0", "decoder=rtdetrv2") is None
    assert before("precision.data_max=16.0", model="b") is None, "another file under the same name"
    assert before() == 64.0


def test_a_job_in_a_folder_finds_the_runs_of_its_project(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PROJECT_VARIABLE, str(with_empty_store(tmp_path_factory.mktemp("project"))))
    track(scratch_run(tmp_path))
    assert previous_run(Run.read(scratch_run(tmp_path, "seed=1"))) is not None
