"""Two machines and a DVC remote: what one has run the other does not run; a remote that fails loses nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.cache.remote_cache import without_remote
from pipeline.run import run
from pipeline.sweep.isolated import isolated, local_configuration
from pipeline.sweep.ray_worker import unpack
from pipeline.sweep.snapshot import take
from pipeline.workspace import AWAY_VARIABLE
from tests.configurations import composed
from tests.conftest import ROOT, in_workspace
from tests.messages import expect
from tests.pipeline.servers import free_port
from tests.pipeline.small_project import git, make
from tests.tiers import first_of
from truehalf.codes import codes_in

SECRET = "not-for-any-file"
KEYS = {"AWS_ACCESS_KEY_ID": "somebody", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_DEFAULT_REGION": "us-east-1"}
BOTH = {"common": 1, "own": 1, "workspace": {"isolated": False, "pull": True, "push": True}}


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """A server that speaks S3, with a bucket; yields its address."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    try:
        address = "http://{}:{}".format(*server.get_host_and_port())
        keys = {"aws_access_key_id": "x", "aws_secret_access_key": "y", "region_name": "us-east-1"}
        boto3.client("s3", endpoint_url=address, **keys).create_bucket(Bucket="bucket")
        yield address
    finally:
        server.stop()


@pytest.fixture(autouse=True)
def _environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"RAN": str(tmp_path / "ran"), "PYTHONPATH": str(ROOT), "HOME": str(tmp_path / "home")}
    for name, value in {**KEYS, **own, "AWS_EC2_METADATA_DISABLED": "true", "DVC_NO_ANALYTICS": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("TRUEHALF_SWEEP", raising=False)


def dvc(folder: Path, *arguments: str) -> str:
    done = in_workspace(folder, sys.executable, "-m", "dvc", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def with_remote(project: Path, url: str, endpoint: str | None = None) -> Path:
    """The project with a default remote, committed for all clones; the url of a folder is relative to .dvc/."""
    lines = ["[core]", "    remote = store", "['remote \"store\"']", f"    url = {url}"]
    (project / ".dvc/config").write_text("\n".join([*lines, f"    endpointurl = {endpoint}" if endpoint else "", ""]))
    git(project, "commit", "-qam", "a remote")
    return project


def clone(project: Path, folder: Path) -> Path:
    git(project, "clone", "-q", str(project), str(folder))
    return folder


def run_in(folder: Path, values: Mapping[str, Any] = BOTH, project: Path | None = None) -> str:
    """What a run says, of `python -m pipeline` after it has composed and checked its values; it has to end well."""
    log = folder.with_suffix(".log")
    with log.open("w") as output:
        code = run(folder, values, project=project, output=output)
    assert code == 0, log.read_text()
    return log.read_text()


def ran(tmp_path: Path) -> list[str]:
    """Stages that were executed, on all machines together."""
    return (tmp_path / "ran").read_text().split()


def moved(said: str) -> list[int]:
    """How many stages a run has taken from the remote, and how many it has sent there."""
    return [int(number) for number in re.findall(r"^remote: \D*(\d+)", said, re.MULTILINE)]


def failures_of_remote(said: str) -> list[str]:
    return [line for line in said.splitlines() if "remote-fails" in codes_in(line)]


def files_with(text: str, folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


@pytest.mark.parametrize("kind", first_of(["s3", "folder"]))
def test_the_second_machine_runs_nothing_that_the_first_has_run(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    remote = (
        ("../../store", None) if kind == "folder" else (f"s3://bucket/{tmp_path.name}", request.getfixturevalue("s3"))
    )
    first = with_remote(make(tmp_path / "first"), *remote)
    second = clone(first, tmp_path / "second")
    said = run_in(first)
    assert ran(tmp_path) == ["common", "own"] and moved(said) == [0, 2]
    said = run_in(second)
    assert ran(tmp_path) == ["common", "own"] and moved(said) == [2, 0]
    assert (second / "out/own/value").read_text() == "own" and (second / "out/common/value").read_text() == "common"
    run_in(second, BOTH | {"own": 2})
    assert ran(tmp_path) == ["common", "own", "own"], "what differs runs, also where something of it is in place"
    assert not files_with(SECRET, tmp_path)


@pytest.mark.slow
def test_workspaces_of_their_own_share_too_and_what_differs_runs(tmp_path: Path) -> None:
    first = with_remote(make(tmp_path / "first"), "../../store")
    second = clone(first, tmp_path / "second")
    for project, own, expected in (
        (first, 1, ["common", "own"]),
        (second, 1, []),
        (second, 2, ["own"]),
    ):
        (tmp_path / "ran").write_text("")
        with isolated(project, take(project), "one", {}) as place:
            run_in(place, BOTH | {"own": own}, project)
            assert (place / "out/own/value").read_text() == "own"
        assert ran(tmp_path) == expected


def test_a_worker_that_does_not_see_the_cache_takes_it_from_the_remote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = with_remote(make(tmp_path / "first"), "../../store")
    run_in(first)
    worker = tmp_path / "elsewhere" / "worker"
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=first, capture_output=True, check=True).stdout
    unpack(archive, worker)
    told = local_configuration(first, {"cache": {"dir": "cache"}})
    (worker / ".dvc/config.local").write_text(told)
    monkeypatch.setenv(AWAY_VARIABLE, "1")
    run_in(worker, project=worker)
    assert ran(tmp_path) == ["common", "own"] and (worker / "out/own/value").exists()


def test_it_is_dvcs_own_layout(tmp_path: Path) -> None:
    """`dvc push --run-cache` serves workspace.pull; `dvc pull` brings what a committed dvc.lock names."""
    first = with_remote(make(tmp_path / "first"), "../../store")
    run_in(first, BOTH | {"workspace": {"isolated": False, "pull": False, "push": False}})
    git(first, "add", "dvc.lock")
    git(first, "commit", "-qm", "what ran")
    dvc(first, "push", "--run-cache")
    second, third = clone(first, tmp_path / "second"), clone(first, tmp_path / "third")
    (second / "dvc.lock").unlink()
    run_in(second)
    dvc(third, "pull")
    assert ran(tmp_path) == ["common", "own"] and (third / "out/own/value").read_text() == "own"


@pytest.mark.slow
def test_a_remote_that_lost_files_is_mended_by_the_next_who_runs(tmp_path: Path) -> None:
    first = with_remote(make(tmp_path / "first"), "../../store")
    second, third = clone(first, tmp_path / "second"), clone(first, tmp_path / "third")
    run_in(first)
    (tmp_path / "store/files").rename(tmp_path / "lost")
    run_in(second)
    assert ran(tmp_path) == ["common", "own"] * 2
    run_in(third)
    assert ran(tmp_path) == ["common", "own"] * 2


@pytest.mark.slow
def test_without_credentials_the_run_goes_on_and_what_it_made_is_sent_later(
    tmp_path: Path, s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = with_remote(make(tmp_path / "first"), f"s3://bucket/{tmp_path.name}", s3)
    second = clone(first, tmp_path / "second")
    with monkeypatch.context() as without:
        without.delenv("AWS_ACCESS_KEY_ID")
        without.delenv("AWS_SECRET_ACCESS_KEY")
        said = run_in(first)
    assert ran(tmp_path) == ["common", "own"]
    pull, push = failures_of_remote(said)
    expect(pull, None, "workspace.pull", "NoCredentialsError")
    expect(push, None, "workspace.push", "NoCredentialsError", "python -m pipeline.cache.remote_cache push")
    assert "Traceback" not in said
    done = in_workspace(first, sys.executable, "-m", "pipeline.cache.remote_cache", "push")
    assert done.returncode == 0, done.stderr
    run_in(second)
    assert ran(tmp_path) == ["common", "own"]


@pytest.mark.slow
def test_a_remote_that_dies_while_stages_come_from_it_costs_those_stages_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    first = with_remote(make(tmp_path / "first"), "../../store")
    second = clone(first, tmp_path / "second")
    run_in(first)
    assert in_workspace(second, sys.executable, "-m", "pipeline.cache.remote_cache", "pull").returncode == 0
    dvc(second, "remote", "modify", "--local", "store", "url", "s3://bucket/folder")
    dvc(second, "remote", "modify", "--local", "store", "endpointurl", f"http://127.0.0.1:{free_port()}")
    done = in_workspace(second, sys.executable, "-m", "pipeline.cache.shared_repro", "--pull-outs")
    assert done.returncode == 0, done.stdout + done.stderr
    assert ran(tmp_path) == ["common", "own"] * 2
    (said,) = failures_of_remote(done.stderr)
    expect(said, None, "workspace.pull", "EndpointConnectionError")


def test_where_there_is_no_remote_nothing_runs(workspace: Path) -> None:
    for arguments in (("workspace.pull=true", "workspace.push=true"), ("-m", "workspace.push=true", "seed=1,2")):
        done = in_workspace(workspace, sys.executable, "-m", "pipeline", *arguments)
        assert done.returncode == 2, done.stderr
        expect(done.stderr, "no-remote", "workspace.push", "dvc remote add -d NAME URL")
    assert not (workspace / "artifacts").exists() and "Traceback" not in done.stderr


def test_a_remote_is_asked_for_only_where_it_is_used_and_faults_of_dvcs_configuration_are_said(tmp_path: Path) -> None:
    (tmp_path / ".dvc").mkdir()
    asked = {"pull": True, "push": False}
    for text, codes in (
        ("", ["no-remote"]),
        ("[core]\n    remote = a\n", []),
        ("[core]\n    remotes = a\n", ["file-unreadable"]),
    ):
        (tmp_path / ".dvc/config").write_text(text)
        found = without_remote(asked, tmp_path)
        assert [code for error in found for code in codes_in(error)] == codes and len(found) == len(codes), text
        assert all("workspace.pull" in error for error in found)
        assert not without_remote({"pull": False, "push": False}, tmp_path)


# --- engines ----------------------------------------------------------------------------------------------------------

# The end of dvc.yaml with a stand-in for building, which takes a GPU.
ENGINE = """\
stages:
  probe:
    cmd: python -m stages.probe
    always_changed: true
    params: [engine.plugins, engine.backend, engine.provider]
    outs:
      - reports/probe.json: {cache: false, persist: true}
  engine:
    cmd: python work.py engine
    deps: [work.py, reports/probe.json]
    outs: [out/engine]
"""


def machine(folder: Path, gpu: str, tensorrt: str) -> dict[str, str]:
    """Variables under which a machine shows this GPU (as nvidia-smi prints it) and this TensorRT."""
    folder.mkdir()
    (folder / "nvidia-smi").write_text(f"#!/bin/sh\necho '{gpu}'\n")
    (folder / "nvidia-smi").chmod(0o755)
    (folder / "tensorrt.py").write_text(f"__version__ = '{tensorrt}'\n")
    return {"PATH": f"{folder}:{Path(sys.executable).parent}:/usr/bin:/bin", "PYTHONPATH": f"{ROOT}:{folder}"}


def test_the_stand_in_has_the_shape_of_the_chain() -> None:
    chain = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
    probe = yaml.safe_load(ENGINE)["stages"]["probe"]
    assert {key: chain["probe"][key] for key in probe} == probe
    assert "reports/probe.json" in chain["engine"]["deps"]


@pytest.mark.slow
def test_an_engine_comes_from_the_remote_only_to_a_machine_of_the_same_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = make(tmp_path / "first")
    (first / "dvc.yaml").write_text(ENGINE)
    (first / ".gitignore").write_text("/out/\n/reports/\n")
    git(first, "add", "-A")
    with_remote(first, "../../store")
    values = composed("workspace.pull=true")
    t4 = "NVIDIA T4, 580.1, 7.5, 15360 MiB"
    runs = (
        ("first", t4, "11.4.0", 1),
        ("second", t4, "11.4.0", 0),
        ("second", t4.replace("T4", "L4"), "11.4.0", 1),  # in its place
        ("third", t4.replace("580.1", "581.0"), "11.4.0", 1),
        ("third", t4, "11.5.0", 1),
        ("third", t4, "11.4.0", 0),
    )
    for number, (name, gpu, tensorrt, expected) in enumerate(runs):
        (tmp_path / "ran").write_text("")
        for variable, value in machine(tmp_path / f"machine-{number}", gpu, tensorrt).items():
            monkeypatch.setenv(variable, value)
        values["workspace"]["push"] = name == "first"
        folder = tmp_path / name
        said = run_in(folder if folder.exists() else clone(first, folder), values)
        assert ran(tmp_path) == ["engine"] * expected, (number, said)
