"""The model registry: the verified file itself, with its signature, spec and gates; never a run whose gates failed."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import onnx
import onnx.parser
import pytest

from pipeline.registry import refusal
from pipeline.run_record import Run
from pipeline.track import NOT_LOGGED, sha256_of
from tests.messages import expect
from tests.pipeline.empty_store import with_empty_store
from tests.pipeline.test_track import VERIFY, crash, log_later, scratch_run, track

TEXT = """<ir_version: 8, opset_import: ["" : 17]> g (float16[N,3] images, int64[1] size) => (float16[N,3] y)
    { y = Relu(images) }"""
GATES = [
    {
        "gate": "ap50_95_drop_max",
        "value": 0.001,
        "threshold": 0.005,
        "state": "verified",
        "reason": "0.001, at most 0.005",
    },
    {
        "gate": "tensor_rms_max",
        "value": None,
        "threshold": 0.01,
        "state": "not verified",
        "reason": "no such outputs",
    },
]
NAME = "ltdetr_nano-dfine-fp16-aaaaaaaa"  # with the digest of the model


def verified_run(folder: Path, *overrides: str, verify: dict[str, Any] | None = None) -> Path:
    scratch_run(folder, "tracking.register=true", *overrides, verify=verify)
    for stage in ("trace", "cast_cleanup"):
        (folder / f"reports/{stage}.json").write_text(json.dumps({"stage": stage}))
        (folder / "artifacts" / stage).mkdir(parents=True, exist_ok=True)
    (folder / "artifacts/verify").mkdir(exist_ok=True)
    onnx.save(onnx.parser.parse_model(TEXT), folder / "artifacts/cast_cleanup/model.onnx")
    (folder / "artifacts/trace/io_spec.json").write_text(json.dumps({"inputs": [{"name": "images", "kind": "images"}]}))
    (folder / "artifacts/verify/verdict.json").write_text(json.dumps({"verdict": "passed", "findings": GATES}))
    return folder


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> mlflow.MlflowClient:
    with_empty_store(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")  # for what reads the registry
    return mlflow.MlflowClient()


def test_what_is_registered_is_the_verified_file_with_all_that_is_known_of_it(
    client: mlflow.MlflowClient, tmp_path: Path
) -> None:
    outcome = track(verified_run(tmp_path))
    assert outcome["registered"] == {"name": NAME, "version": "1"}
    expect(outcome["message"], None, NAME, "version 1")
    version = client.get_model_version(NAME, "1")
    file = tmp_path / "artifacts/cast_cleanup/model.onnx"
    assert version.run_id == outcome["run_id"]
    assert version.tags["verdict"] == "passed" and version.tags["precision"] == "fp16"
    told = version.description
    assert "ap50_95_drop_max: verified: 0.001, at most 0.005" in told
    assert "tensor_rms_max: not verified: no such outputs" in told
    folder = Path(mlflow.artifacts.download_artifacts(f"models:/{NAME}/1", dst_path=str(tmp_path / "taken")))
    assert (folder / "model.onnx").read_bytes() == file.read_bytes()
    assert version.tags["model_sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    info = mlflow.models.get_model_info(f"models:/{NAME}/1")
    (images, size), (y,) = info.signature.inputs.inputs, info.signature.outputs.inputs
    assert (images.name, images.type, images.shape) == ("images", np.dtype("float16"), (-1, 3))
    assert (size.name, size.type, size.shape, y.name) == ("size", np.dtype("int64"), (1,), "y")
    assert info.metadata["io_spec"] == {"inputs": [{"name": "images", "kind": "images"}]}
    assert json.loads((folder / "verdict.json").read_text())["findings"] == GATES
    assert onnx.load(folder / "model.onnx") == mlflow.onnx.load_model(f"models:/{NAME}/1")


def test_mlflow_runs_it(client: mlflow.MlflowClient, tmp_path: Path) -> None:
    track(verified_run(tmp_path))
    model = mlflow.pyfunc.load_model(f"models:/{NAME}/1")
    images = np.array([[-1, 0, 2]], np.float16)
    found = model.predict({"images": images, "size": np.array([3], np.int64)})
    np.testing.assert_array_equal(found["y"], np.maximum(images, 0))


def test_a_run_is_registered_once_and_one_that_was_logged_without_is_registered_later(
    client: mlflow.MlflowClient, tmp_path: Path
) -> None:
    first = track(verified_run(tmp_path, "tracking.register=false"))
    assert first["registered"] is None and not client.search_registered_models()
    verified_run(tmp_path)
    for _ in range(2):
        again = track(tmp_path)
        assert (again["status"], again["run_id"]) == ("already logged", first["run_id"])
        assert again["registered"] == {"name": NAME, "version": "1"}
    assert len(client.search_model_versions(f"name='{NAME}'")) == 1


@pytest.mark.parametrize(
    "verify",
    [VERIFY | {"status": "failed", "verdict": "failed"}, VERIFY | {"verdict": "not verified"}],
)
def test_a_run_whose_gates_have_not_passed_is_not_registered(
    verify: dict[str, Any], client: mlflow.MlflowClient, tmp_path: Path
) -> None:
    outcome = track(verified_run(tmp_path, verify=verify))
    assert outcome["status"] == "logged" and outcome["registered"] is None
    expect(outcome["message"], "gates-not-passed", verify["verdict"])
    assert not client.search_registered_models()


def test_nor_one_that_crashed_or_whose_file_is_not_logged(client: mlflow.MlflowClient, tmp_path: Path) -> None:
    crash(verified_run(tmp_path), "engine")
    expect(track(tmp_path)["message"], "gates-not-passed", "crashed")
    small = verified_run(tmp_path / "small", "tracking.max_model_mb=0.00001")
    reason = refusal(Run.read(small))
    assert reason is not None
    expect(reason, "too-large", "tracking.max_model_mb=1e-05")
    assert not client.search_registered_models()


def test_who_follows_the_advice_to_raise_the_limit_has_the_file_registered(
    client: mlflow.MlflowClient, tmp_path: Path
) -> None:
    first = track(verified_run(tmp_path, "tracking.max_model_mb=0.00001"))
    assert first["registered"] is None
    expect(first["message"], "too-large", "tracking.max_model_mb=1e-05")
    assert not client.list_artifacts(first["run_id"], "model")
    again = track(verified_run(tmp_path))
    assert (again["status"], again["run_id"]) == ("already logged", first["run_id"])
    assert again["registered"] == {"name": NAME, "version": "1"}
    file = tmp_path / "artifacts/cast_cleanup/model.onnx"
    assert mlflow.onnx.load_model(f"models:/{NAME}/1") == onnx.load(file)
    assert client.get_model_version(NAME, "1").tags["model_sha256"] == sha256_of([file])


def test_a_file_that_is_not_the_one_whose_hash_was_logged_is_not_registered(
    client: mlflow.MlflowClient, tmp_path: Path
) -> None:
    first = track(verified_run(tmp_path, "tracking.max_model_mb=0.00001"))
    verified_run(tmp_path)
    onnx.save(onnx.parser.parse_model(TEXT.replace("Relu", "Neg")), tmp_path / "artifacts/cast_cleanup/model.onnx")
    outcome = track(tmp_path)
    assert outcome["registered"] is None
    file = tmp_path / "artifacts/cast_cleanup/model.onnx"
    expect(outcome["message"], "wrong-file", first["run_id"], file, sha256_of([file]))
    assert not client.search_registered_models() and not client.list_artifacts(first["run_id"], "model")


def test_a_run_that_is_logged_later_is_registered_then(
    client: mlflow.MlflowClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_ARTIFACT_ROOT", str(tmp_path / "mlartifacts"))
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with monkeypatch.context() as down:
        down.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
        assert track(verified_run(tmp_path, "tracking=remote"))["status"] == NOT_LOGGED
    for file in ("artifacts/cast_cleanup/model.onnx", "artifacts/trace/io_spec.json"):
        (tmp_path / file).unlink()
    (place,) = tmp_path.glob("runs/*/record.json")
    assert log_later(tmp_path, place.parent.name, monkeypatch) == 0
    assert client.get_model_version(NAME, "1").tags["verdict"] == "passed"
