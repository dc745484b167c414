"""A team's server: MLflow on PostgreSQL, with many writers, down, slow, and restarted in the middle of a run."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import pytest

from pipeline.record import kept
from pipeline.sweep import VARIABLE, Sweep
from pipeline.track import catch_up, track
from tests.conftest import ROOT
from tests.pipeline.servers import PASSWORD, MlflowServer, postgres, postgres_binaries
from tests.pipeline.test_registry import verified_run
from tests.pipeline.test_track import scratch_run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(postgres_binaries() is None, reason="PostgreSQL is not installed (package postgresql)"),
]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    folder = tmp_path_factory.mktemp("servers")
    with postgres(folder / "postgres") as database:
        server = MlflowServer(database, folder / "artifacts", folder / "server.log")
        server.start()
        try:
            yield server
        finally:
            server.stop()


@pytest.fixture
def server(running: MlflowServer, monkeypatch: pytest.MonkeyPatch) -> MlflowServer:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", running.address)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "5")
    return running


def runs_of(server: MlflowServer, experiment: str) -> list[Any]:
    client = mlflow.MlflowClient(tracking_uri=server.address)
    return list(client.search_runs([client.get_experiment_by_name(experiment).experiment_id]))


def remote(folder: Path, experiment: str, *overrides: str) -> Path:
    return scratch_run(folder, "tracking=remote", f"tracking.experiment={experiment}", *overrides)


def test_many_write_at_once_and_are_one_sweep(server: MlflowServer, tmp_path: Path) -> None:
    sweep = Sweep("together", str(tmp_path), "", True, [])
    jobs = []
    for number in range(6):
        folder = remote(tmp_path / str(number), "together", f"seed={number}")
        (folder / "dvc.yaml").write_text("stages: {}\n")
        environment = os.environ | {VARIABLE: sweep.text(), "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "pipeline.track"]
        jobs.append(subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True))
    assert ["logged as run" in job.communicate()[0] for job in jobs] == [True] * 6
    found = runs_of(server, "together")
    children = [run for run in found if "mlflow.parentRunId" in run.data.tags]
    parents = {run.data.tags["mlflow.parentRunId"] for run in children}
    assert len(children) == 6 and len(found) == 7, [run.info.run_name for run in found]
    assert parents == {run.info.run_id for run in found if run not in children}
    client = mlflow.MlflowClient(tracking_uri=server.address)
    assert "reports/verify.json" in [file.path for file in client.list_artifacts(children[0].info.run_id, "reports")]


def test_a_server_that_is_down_is_caught_up_with_later(server: MlflowServer, tmp_path: Path) -> None:
    server.stop()
    for decoder in ("dfine", "rtdetrv2"):
        assert track(remote(tmp_path, "down", f"decoder={decoder}"))["status"] == "pending"
    assert catch_up(tmp_path) == 1 and len(kept(tmp_path)) == 2
    server.start()
    assert catch_up(tmp_path) == 0 and not kept(tmp_path)
    assert sorted(run.data.tags["decoder"] for run in runs_of(server, "down")) == ["dfine", "rtdetrv2"]


def test_a_server_that_never_answers_is_given_up(
    server: MlflowServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{mute.getsockname()[1]}")
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
        started = time.monotonic()
        assert track(remote(tmp_path, "slow"))["status"] == "pending"
        assert time.monotonic() - started < 30
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.address)
    assert catch_up(tmp_path) == 0 and len(runs_of(server, "slow")) == 1


def test_a_server_restarted_in_the_middle_of_a_run_has_it_once(
    server: MlflowServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_artifact = mlflow.log_artifact

    def dies(*arguments: Any) -> None:
        server.stop()
        log_artifact(*arguments)

    folder = remote(tmp_path, "restarted")
    with monkeypatch.context() as broken:
        broken.setattr("mlflow.log_artifact", dies)
        assert track(folder)["status"] == "pending"
    server.start()
    assert len(runs_of(server, "restarted")) == 1, "the half of it that was there"
    assert catch_up(tmp_path) == 0
    (run,) = runs_of(server, "restarted")
    assert run.info.status == "FINISHED" and run.data.tags["truehalf.complete"] == "true"
    assert track(folder)["status"] == "already logged"


def test_credentials_come_from_the_environment_and_go_nowhere(
    server: MlflowServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = remote(tmp_path, "secret")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.address.replace("http://", f"http://someone:{PASSWORD}@"))
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", PASSWORD)
    outcomes = [track(folder)]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://someone:{PASSWORD}@127.0.0.1:9")
    (folder / "reports/verify.json").write_text(json.dumps({"stage": "verify", "verdict": "passed", "status": "done"}))
    outcomes.append(track(folder))
    assert [outcome["status"] for outcome in outcomes] == ["logged", "pending"]
    written = [path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file()]
    assert PASSWORD not in json.dumps(outcomes) + "".join(written) + "".join(capfd.readouterr())
    (run,) = runs_of(server, "secret")
    assert PASSWORD not in json.dumps([run.data.params, run.data.tags])


def test_a_verified_file_is_registered_through_the_servers_artifact_proxy(server: MlflowServer, tmp_path: Path) -> None:
    outcome = track(verified_run(tmp_path, "tracking=remote", "tracking.experiment=registry"))
    version = outcome["registered"]
    client = mlflow.MlflowClient(tracking_uri=server.address, registry_uri=server.address)
    found = client.get_model_version(version["name"], version["version"])
    assert found.run_id == outcome["run_id"] and found.source.startswith("mlflow-artifacts:")
    mlflow.set_registry_uri(server.address)
    address = f"models:/{version['name']}/{version['version']}"
    folder = mlflow.artifacts.download_artifacts(address, dst_path=str(tmp_path / "taken"), tracking_uri=server.address)
    final = tmp_path / "artifacts/cast_cleanup/model.onnx"
    assert (Path(folder) / "model.onnx").read_bytes() == final.read_bytes()
