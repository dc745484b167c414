"""Names and descriptions of tracked runs, and what a run's page in MLflow shows first."""

import json
import os
from pathlib import Path

import mlflow
import pytest

from pipeline.track import SOURCE_TAG, track
from pipeline.tracking.naming import PAGE, description, distinct_name, overrides
from pipeline.tracking.record import of_workspace
from pipeline.workspace import ABOUT_VARIABLE, STAGES
from tests.pipeline.empty_store import with_empty_store
from tests.pipeline.test_track import VERIFY, scratch_run

NAME, IMAGES = "ltdetr_nano-dfine-fp16", "data.folder=/somewhere/images"


@pytest.mark.parametrize(
    ("told", "name"),
    [
        ([], NAME),
        (["precision=fp32", "precision.data_max=128"], "ltdetr_nano-dfine-fp32"),
        (["precision.data_max=128.0", "tracking.register=true"], f"{NAME}-data_max=128.0"),
        (["experiment=cautious", "seed=7"], f"{NAME}-experiment=cautious-seed=7"),
        (["engine=onnxruntime", "repair=none"], f"{NAME}-engine=onnxruntime-repair=none"),
        (["precision.op_block_list=[Softmax,Exp]"], f"{NAME}-op_block_list=Softmax,Exp"),
        (["precision.node_block_list=[/a/long/name/of/a/node,/b]"], f"{NAME}-node_block_list=2 entries"),
        (["trace.atol=0.1", "slim.atol=0.1"], f"{NAME}-trace.atol=0.1-slim.atol=0.1"),
        (["model=onnx", "model.checkpoint=a/b.onnx", IMAGES], "onnx-fp16-checkpoint=b.onnx-folder=images"),
        (["model=onnx", "model.outputs=[{name: y, kind: classes}]", "model.classes=[a,b]"], "onnx-fp16"),
        (["precision.method=half", "verify=smoke"], f"{NAME}-half-verify=smoke"),
        (["verify.batch=1", "verify.pictures=0", "seed=1", "repair=none"], f"{NAME}-batch=1-pictures=0-seed=1-+1"),
    ],
)
def test_a_name_has_the_overrides_of_the_command_line(
    told: list[str], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ABOUT_VARIABLE, json.dumps({"overrides": told}))
    record = of_workspace(scratch_run(tmp_path, *(each for each in told if not each.startswith("experiment="))))
    assert distinct_name(record.params, overrides(record)) == name


@pytest.mark.parametrize("engine", ["failed", "planned", "compiled", "skipped", "built"])
def test_a_description_has_one_verdict_and_no_empty_part(tmp_path: Path, engine: str) -> None:
    scratch_run(tmp_path)
    (tmp_path / "reports/engine.json").write_text(json.dumps({"stage": "engine", "status": engine}))
    record = of_workspace(tmp_path)
    text = description(record, overrides(record))
    assert text.startswith("**failed**" if engine == "failed" else "**passed**") and f"engine: {engine}" in text
    assert "Overrides" not in text and PAGE not in text


def whole_run(folder: Path, *told: str) -> Path:
    """A workspace with reports of every stage, and a page; the run took 100 s."""
    scratch_run(folder, *told, verify=VERIFY | {"ap50_95": 0.8123, "ap50_95_fp32": 0.8125})
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


def test_a_run_has_its_own_times_a_description_and_the_page_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ABOUT_VARIABLE, json.dumps({"overrides": ["precision.data_max=128"]}))
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
        told = track(scratch_run(tmp_path, f"tracking.source_run_id='{source}'"))
        assert told["run_id"] == outcome["run_id"] and told["status"] == "already logged"
        tags = client.get_run(outcome["run_id"]).data.tags
        assert tags[SOURCE_TAG] == source and fact in tags["mlflow.note.content"]
    assert "epoch 12" not in tags["mlflow.note.content"]
