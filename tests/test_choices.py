"""The shipped choices that the sweep of four does not run: the full-size model, a folder of pictures, a server."""

import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from stages.data.digits import scene
from stages.data.images import list_images
from stages.data.samples import TRACE_SAMPLES
from tests.conftest import in_workspace

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real MLflow server on this machine, with its artifact proxy."""
    folder = tmp_path_factory.mktemp("server")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    store = ["--backend-store-uri", f"sqlite:///{folder}/server.db", "--artifacts-destination", str(folder / "files")]
    command = [sys.executable, "-m", "mlflow", "server", *store, "--host", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen([*command, "--workers", "1"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(240):
            try:
                urllib.request.urlopen(f"{address}/health", timeout=2)
                break
            except OSError:
                assert process.poll() is None, "the server did not start"
                time.sleep(0.5)
        yield address
    finally:
        process.terminate()
        process.wait(timeout=30)


def test_the_full_size_model_with_random_weights(swept) -> None:  # type: ignore[no-untyped-def]
    workspace: Path = swept[0]
    few = ("data.calibration_samples=1", "data.verification_samples=1")
    done = in_workspace(workspace, "python", "-m", "pipeline", "model=ltdetr", *few)
    assert done.returncode == 0, done.stderr
    verify = json.loads((workspace / "reports/verify.json").read_text())
    assert verify["verdict"] == "not verified" and any("random" in item for item in verify["not_verified"])
    assert "verdict: not verified" in done.stdout
    final = json.loads((workspace / "reports/cast_cleanup.json").read_text())["model"]
    assert final["fp16_fraction"] > 0.9 and final["untyped_nodes"] == 0


def test_a_folder_of_pictures_tracked_on_a_server(swept, server: str) -> None:  # type: ignore[no-untyped-def]
    workspace: Path = swept[0]
    (workspace / "pictures").mkdir()
    for index in range(TRACE_SAMPLES + 5):
        Image.fromarray(scene(index, "val").image).save(workspace / "pictures" / f"{index}.png")
    command = ["python", "-m", "pipeline", "data=images", "data.folder=pictures", "tracking=remote"]
    command += ["data.calibration_samples=2", "data.verification_samples=3"]
    done = in_workspace(workspace, *command, env={"MLFLOW_TRACKING_URI": server})
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    verify = json.loads((workspace / "reports/verify.json").read_text())
    assert verify["matched_fraction"] is not None and verify["ap50_95"] is None
    assert any("average precision" in item for item in verify["not_verified"])
    tracked = json.loads((workspace / "reports/track.json").read_text())
    assert tracked["status"] == "logged", tracked
    for file in (workspace / "params.yaml", workspace / "reports/track.json"):
        assert server not in file.read_text(), "addresses come from the environment and stay there"

    for path in (workspace / "pictures").iterdir():  # the same names, other pictures: all who read them run again
        Image.fromarray(scene(99 + int(path.stem), "train").image).save(path)
    again = in_workspace(workspace, *command, env={"MLFLOW_TRACKING_URI": server})
    assert again.returncode == 0
    for stage in ("trace", "slim", "calibrate", "verify"):
        assert f"Running stage '{stage}'" in again.stdout


def test_a_picture_that_cannot_be_read_is_named(swept) -> None:  # type: ignore[no-untyped-def]
    workspace: Path = swept[0]
    folder = workspace / "broken"
    folder.mkdir()
    for index in range(TRACE_SAMPLES + 2):
        (folder / f"{index}.png").write_bytes(f"not a picture {index}".encode())
    counts = ("data.calibration_samples=1", "data.verification_samples=1")
    done = in_workspace(workspace, "python", "-m", "pipeline", "data=images", "data.folder=broken", *counts)
    assert done.returncode == 1 and "cannot be read as a picture" in done.stderr and "Traceback" not in done.stderr


def test_one_corrupt_picture_is_named_or_left_out_as_asked(swept) -> None:  # type: ignore[no-untyped-def]
    workspace: Path = swept[0]
    folder = workspace / "one_broken"
    folder.mkdir()
    for index in range(TRACE_SAMPLES + 5):
        Image.fromarray(scene(index, "val").image).save(folder / f"{index}.png")
    corrupt = list_images(folder, seed=0)[TRACE_SAMPLES + 2 + 1]  # the second of those for verification
    corrupt.write_bytes(corrupt.read_bytes()[:100])
    command = ["python", "-m", "pipeline", "data=images", "data.folder=one_broken"]
    command += ["data.calibration_samples=2", "data.verification_samples=3"]
    stopped = in_workspace(workspace, *command)
    assert stopped.returncode == 1 and corrupt.name in stopped.stderr and "Traceback" not in stopped.stderr
    done = in_workspace(workspace, *command, "verify.skip_corrupt=true")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    verify = json.loads((workspace / "reports/verify.json").read_text())
    assert verify["samples"] == 2 and len(verify["left_out"]) == 1 and corrupt.name in verify["left_out"][0]
    assert any(corrupt.name in item for item in verify["not_verified"])
    assert corrupt.name in (workspace / "reports/verify.html").read_text()
