"""The shipped choices that the sweep of four does not run: the full-size model, a folder of pictures, a server."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from examples.digits.scenes import scene
from tests.conftest import ROOT, in_workspace
from tests.in_process import run_stages
from tests.messages import expect
from tests.pipeline.servers import MlflowServer
from truehalf.data.run_samples import TRACE_SAMPLES

OPEN = "not verified"
WEIGHTS = ROOT / "examples/digits/weights/dfine.safetensors"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real MLflow server on this machine, with its artifact proxy."""
    folder = tmp_path_factory.mktemp("server")
    server = MlflowServer(f"sqlite:///{folder}/server.db", folder / "files", folder / "log")
    server.start()
    yield server.address
    server.stop()


def pictures(folder: Path, count: int) -> Path:
    folder.mkdir()
    for index in range(count):
        Image.fromarray(scene(index, "val").image).save(folder / f"{index}.png")
    return folder


def open_check(workspace: Path, name: str) -> str:
    """Why a check is not verified, which reports/verify.json says as well."""
    verdict = json.loads((workspace / "artifacts/verify/verdict.json").read_text())
    (reason,) = (check["reason"] for check in verdict["checks"] if (check["check"], check["state"]) == (name, OPEN))
    verify = json.loads((workspace / "reports/verify.json").read_text())
    left = reason  # one or several of the texts there, which begin with the check's name where gates have no value
    for item in verify["not_verified"]:
        left = left.replace(item.removeprefix(f"{name.replace('_', ' ')}: "), "")
    assert not left.strip("; "), left
    return str(reason)


@pytest.mark.slow
def test_the_full_size_model_with_random_weights(after_chain: Path) -> None:
    workspace = after_chain
    few = ("data.calibration_samples=1", "data.verification_samples=1")
    done = in_workspace(workspace, "python", "-m", "pipeline", "model=ltdetr", *few)
    assert done.returncode == 0, done.stderr
    verify = json.loads((workspace / "reports/verify.json").read_text())
    assert verify["verdict"] == OPEN and re.search(f"^{OPEN}\\b", done.stdout, re.MULTILINE)
    expect(open_check(workspace, "detections"), None, "trained: false")
    final = json.loads((workspace / "reports/cast_cleanup.json").read_text())["model"]
    assert final["fp16_fraction"] > 0.9 and final["untyped_nodes"] == 0


@pytest.mark.slow
def test_a_folder_of_pictures_tracked_on_a_server(after_chain: Path, server: str) -> None:
    workspace = after_chain
    pictures(workspace / "pictures", TRACE_SAMPLES + 5)
    command = ["python", "-m", "pipeline", "--verbose", "data=images", "data.folder=pictures", "tracking=remote"]
    command += ["data.calibration_samples=2", "data.verification_samples=3"]
    done = in_workspace(workspace, *command, env={"MLFLOW_TRACKING_URI": server})
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    verify = json.loads((workspace / "reports/verify.json").read_text())
    assert verify["matched_fraction"] is not None and verify["ap50_95"] is None
    assert open_check(workspace, "average_precision")
    tracked = json.loads((workspace / "reports/track.json").read_text())
    assert tracked["status"] == "logged", tracked
    for file in (workspace / "params.yaml", workspace / "reports/track.json"):
        assert server not in file.read_text(), "addresses come from the environment and stay there"

    for path in (workspace / "pictures").iterdir():  # the same names, other pictures: all who read them run again
        Image.fromarray(scene(99 + int(path.stem), "train").image).save(path)
    again = in_workspace(workspace, *command, env={"MLFLOW_TRACKING_URI": server})
    assert again.returncode == 0, again.stdout[-2500:]
    for stage in ("trace", "slim", "calibrate", "verify"):
        assert f"Running stage '{stage}'" in again.stdout


def test_a_picture_that_cannot_be_read_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "broken"
    folder.mkdir()
    for index in range(TRACE_SAMPLES + 2):
        (folder / f"{index}.png").write_bytes(f"not a picture {index}".encode())
    counts = ("data.calibration_samples=1", "data.verification_samples=1")
    with pytest.raises(SystemExit) as ended:
        run_stages(tmp_path, f"model.checkpoint={WEIGHTS}", "data=images", "data.folder=broken", *counts)
    assert ended.value.code == 1
    assert re.search(r"\bbroken/\d+\.png\b.* \[file-unreadable\]", capsys.readouterr().err)
