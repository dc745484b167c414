"""Two machines and one DVC remote: what the first has run the second does not run, and a remote that fails loses nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.run import run
from tests.conftest import ROOT
from tests.pipeline.servers import free_port
from tests.pipeline.small_project import git, make

SECRET = "not-for-any-file"
KEYS = {"AWS_ACCESS_KEY_ID": "somebody", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_DEFAULT_REGION": "us-east-1"}
BOTH = {"isolated": False, "pull": True, "push": True}


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """A server that speaks S3, with a bucket; yields its address."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    try:
        address = "http://{}:{}".format(*server.get_host_and_port())
        client = boto3.client(
            "s3", endpoint_url=address, aws_access_key_id="x", aws_secret_access_key="y", region_name="us-east-1"
        )
        client.create_bucket(Bucket="bucket")
        yield address
    finally:
        server.stop()


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**KEYS, "RAN": str(tmp_path / "ran"), "PYTHONPATH": str(ROOT)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("TRUEHALF_SWEEP", raising=False)


def dvc(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "dvc", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def with_remote(project: Path, *urls: str) -> Path:
    """The project with a default remote, which is committed as a team would: url, and for S3 the server's address."""
    dvc(project, "remote", "add", "-d", "store", urls[0])
    if len(urls) > 1:
        dvc(project, "remote", "modify", "store", "endpointurl", urls[1])
    git(project, "commit", "-qam", "a remote")
    return project


def clone(project: Path, folder: Path) -> Path:
    git(project, "clone", "-q", str(project), str(folder))
    return folder


def run_in(folder: Path, own: int = 1, project: Path | None = None, **workspace: bool) -> tuple[int, str]:
    """A run as `python -m pipeline` does it; its exit code and what it said."""
    values = {"common": 1, "own": own, "workspace": BOTH | workspace}
    log = folder.parent / f"{folder.name}.log"
    with log.open("w") as output:
        code = run(folder, values, project=project, output=output)
    return code, log.read_text()


def ran(tmp_path: Path) -> list[str]:
    """Stages that were executed, on all machines together."""
    file = tmp_path / "ran"
    return file.read_text().split() if file.exists() else []


@pytest.mark.parametrize("kind", ["folder", "s3"])
def test_the_second_machine_runs_nothing_that_the_first_has_run(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    urls = (str(tmp_path / "store"),) if kind == "folder" else (f"s3://bucket/{tmp_path.name}", request.getfixturevalue("s3"))
    first = with_remote(make(tmp_path / "first"), *urls)
    second = clone(first, tmp_path / "second")
    code, said = run_in(first)
    assert code == 0 and ran(tmp_path) == ["common", "own"], said
    code, said = run_in(second)
    print(said)
    assert code == 0 and ran(tmp_path) == ["common", "own"], said
    assert (second / "out/own/value").read_text() == "own" and (second / "out/common/value").read_text() == "common"
