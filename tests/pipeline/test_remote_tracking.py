"""A team's MLflow server, with many writers, down, slow, and restarted in the middle of a run."""

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mlflow
import pytest

from pipeline import finish as finish_module
from pipeline import track as track_module
from pipeline.track import NOT_LOGGED
from pipeline.workspace import SWEEP_VARIABLE
from tests.conftest import ROOT
from tests.pipeline.servers import PASSWORD, MlflowServer
from tests.pipeline.test_registry import verified_run
from tests.pipeline.test_track import log_later, scratch_run, track


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    folder = tmp_path_factory.mktemp("servers")
    server = MlflowServer(f"sqlite:///{folder}/server.db", folder / "artifacts", folder / "server.log")
    server.start()
    yield server
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


def the_run(folder: Path) -> str:
    """The name of the one run in runs/."""
    (place,) = folder.glob("runs/*/record.json")
    return place.parent.name


def remote(folder: Path, experiment: str, *overrides: str) -> Path:
    return scratch_run(folder, "tracking=remote", f"tracking.experiment={experiment}", *overrides)


@pytest.mark.slow
def test_many_write_at_once_and_are_one_sweep(server: MlflowServer, tmp_path: Path) -> None:
    jobs = []
    for number in range(6):
        folder = remote(tmp_path / str(number), "together", f"seed={number}")
        (folder / "dvc.yaml").write_text("stages: {}\n")
        environment = os.environ | {SWEEP_VARIABLE: "together", "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "pipeline.finish"]
        jobs.append(subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True))
    for number, job in enumerate(jobs):
        said = job.communicate()[0]
        assert json.loads((tmp_path / f"{number}/reports/track.json").read_text())["status"] == "logged", said
    found = runs_of(server, "together")
    children = [run for run in found if "mlflow.parentRunId" in run.data.tags]
    parents = {run.data.tags["mlflow.parentRunId"] for run in children}
    assert len(children) == 6, [run.info.run_name for run in found]
    assert parents <= {run.info.run_id for run in found if run not in children}
    client = mlflow.MlflowClient(tracking_uri=server.address)
    assert "reports/verify.json" in [file.path for file in client.list_artifacts(children[0].info.run_id, "reports")]


@pytest.mark.slow
def test_a_run_of_a_server_that_was_down_is_logged_later(
    server: MlflowServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.stop()
    for decoder in ("dfine", "rtdetrv2"):
        assert track(remote(tmp_path, "down", f"decoder={decoder}"))["status"] == NOT_LOGGED
    names = sorted(path.parent.name for path in tmp_path.glob("runs/*/record.json"))
    assert [log_later(tmp_path, name, monkeypatch) for name in names] == [1, 1]
    server.start()
    assert [log_later(tmp_path, name, monkeypatch) for name in names] == [0, 0]
    assert sorted(run.data.tags["decoder"] for run in runs_of(server, "down")) == ["dfine", "rtdetrv2"]


def test_a_server_that_never_answers_is_given_up(
    server: MlflowServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{mute.getsockname()[1]}")
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
        assert track(remote(tmp_path, "slow"))["status"] == NOT_LOGGED
    monkeypatch.delenv("MLFLOW_HTTP_REQUEST_TIMEOUT")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.address)
    assert log_later(tmp_path, the_run(tmp_path), monkeypatch) == 0 and len(runs_of(server, "slow")) == 1


@pytest.mark.slow
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
        assert track(folder)["status"] == NOT_LOGGED
    server.start()
    assert len(runs_of(server, "restarted")) == 1, "the half of it that was there"
    assert log_later(tmp_path, the_run(tmp_path), monkeypatch) == 0
    (run,) = runs_of(server, "restarted")
    assert run.info.status == "FINISHED" and run.data.tags["truehalf.complete"] == "true"
    assert track(folder)["status"] == "already logged"


# Pieces that no word of an error has. Of those that a URL cannot hold, libraries tell in many ways, half an address
# among them; a server is reached with the first three alone.
PASSWORDS = {
    "plain": (PASSWORD, True),
    "with @": ("xyzzy@plugh", True),
    "with @, as it should be written": ("xyzzy%40plugh", True),
    "with /": ("xyzzy/plugh", False),
    "digits, then /": ("31337/plugh", False),
    "with ?": ("xyzzy?plugh=xyzzy", False),
    "with #": ("xyzzy#plugh", False),
}


@pytest.mark.parametrize(("password", "reaches"), PASSWORDS.values(), ids=PASSWORDS.keys())
def test_credentials_come_from_the_environment_and_go_nowhere(
    password: str,
    reaches: bool,
    server: MlflowServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    experiment = f"secret-{password.encode().hex()}"
    alive = server.address.replace("http://", f"http://someone:{password}@")
    dead = f"http://someone:{password}@127.0.0.1:9"
    folder = remote(tmp_path, experiment)
    (folder / "dvc.yaml").write_text("stages: {}\n")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", password)

    monkeypatch.setenv("MLFLOW_TRACKING_URI", dead)
    assert track(folder)["status"] == NOT_LOGGED
    assert ended(track_module.main, the_run(folder)) == 1
    monkeypatch.setenv("MLFLOW_TRACKING_URI", alive)
    assert ended(track_module.main, the_run(folder)) == (0 if reaches else 1)
    assert ended(finish_module.main) == 0

    said = "".join(capfd.readouterr())
    assert "Traceback" not in said
    written = "".join(path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file())
    pieces = [piece for piece in re.split("[/?#@=]|%40", password) if not piece.isdecimal()]
    assert not [piece for piece in pieces if piece in said or piece in written], said
    assert "***@" in said
    if reaches:
        (run,) = runs_of(server, experiment)
        assert password not in json.dumps([run.data.params, run.data.tags])


def ended(main: Callable[[], int | None], *arguments: str) -> int:
    """The exit code of a command line."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "argv", ["", *arguments])
        try:
            return int(main() or 0)
        except SystemExit as stop:
            return int(stop.code or 0)


def test_a_verified_file_is_registered_through_the_servers_artifact_proxy(server: MlflowServer, tmp_path: Path) -> None:
    outcome = track(verified_run(tmp_path, "tracking=remote", "tracking.experiment=registry"))
    version = outcome["registered"]
    client = mlflow.MlflowClient(tracking_uri=server.address, registry_uri=server.address)
    found = client.get_model_version(version["name"], version["version"])
    assert found.run_id == outcome["run_id"] and found.source.startswith("mlflow-artifacts:")
    address = f"models:/{version['name']}/{version['version']}"
    place = {"tracking_uri": server.address, "registry_uri": server.address}
    folder = mlflow.artifacts.download_artifacts(address, dst_path=str(tmp_path / "taken"), **place)
    final = tmp_path / "artifacts/cast_cleanup/model.onnx"
    assert (Path(folder) / "model.onnx").read_bytes() == final.read_bytes()
