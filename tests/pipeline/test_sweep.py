"""Sweeps: jobs side by side, each in a workspace of its own; what several need runs once; what fails stops nobody."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipeline import sweep_hook
from pipeline.sweep import Sweep
from pipeline.sweep_hook import planned
from tests.conftest import in_workspace, make_workspace

pytestmark = pytest.mark.slow
FEW = ("model.samples.calibration=4", "model.samples.verification=4", "verify.profile=false", "verify.pictures=0")
JOBLIB = ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2")


def sweep(workspace: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return in_workspace(workspace, "python", "-m", "pipeline", "-m", *FEW, *arguments)


def last(workspace: Path) -> Path:
    """The folder of the last sweep."""
    return max((workspace / "runs/.sweeps").iterdir(), key=lambda path: path.stat().st_mtime)


def results(workspace: Path) -> list[dict]:
    found = [json.loads(path.read_text()) for path in last(workspace).glob("*.json")]
    return sorted(found, key=lambda result: result["number"])


def ran(workspace: Path) -> list[str]:
    """Stages that a job of the last sweep executed, all jobs together."""
    logs = "".join(path.read_text() for path in last(workspace).glob("*.log"))
    return re.findall(r"Running stage '(\w+)'", logs)


@pytest.fixture(scope="module")
def parallel(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, "subprocess.CompletedProcess[str]"]:
    """Two precisions that share trace, slim and calibrate, and one that is refused, on an edited project."""
    workspace = make_workspace(tmp_path_factory.mktemp("sweep") / "workspace")
    weights = workspace / "mine" / "weights.safetensors"
    weights.parent.mkdir()
    weights.write_bytes((workspace / "examples/digits/weights/dfine.safetensors").read_bytes())
    (workspace / ".gitignore").open("a").write("/mine/\n")
    (workspace / "params.yaml").write_text("nobody: reads this\n")
    arguments = ("precision=fp16,fp32", "verify.batch=0,2", "model.checkpoint=mine/weights.safetensors")
    return workspace, sweep(workspace, *arguments, *JOBLIB)


def test_a_job_that_fails_stops_no_other_and_the_table_says_which_and_why(
    parallel: tuple[Path, "subprocess.CompletedProcess[str]"],
) -> None:
    workspace, done = parallel
    assert done.returncode == 2, done.stdout + done.stderr
    assert [result["exit_code"] for result in results(workspace)] == [2, 0, 2, 0]
    assert "sweep: 2 of 4 jobs failed: #0, #2" in done.stderr
    assert done.stdout.count("verify.batch: expected 1 or more, got 0") >= 2
    assert "Traceback" not in done.stdout + done.stderr


def test_what_two_jobs_have_in_common_ran_once(parallel: tuple[Path, "subprocess.CompletedProcess[str]"]) -> None:
    stages = ran(parallel[0])
    counts = {stage: stages.count(stage) for stage in ("trace", "slim", "calibrate", "fp16", "verify")}
    assert counts == {"trace": 1, "slim": 1, "calibrate": 1, "fp16": 2, "verify": 2}


def test_jobs_leave_the_project_as_it_was_but_for_runs_cache_and_mlflow(
    parallel: tuple[Path, "subprocess.CompletedProcess[str]"],
) -> None:
    workspace, _ = parallel
    assert (workspace / "params.yaml").read_text() == "nobody: reads this\n"
    assert not (workspace / "artifacts").exists() and not (workspace / "reports").exists()
    assert not list((workspace / ".dvc/tmp/workspaces").glob("*"))
    listed = subprocess.run(["git", "worktree", "list"], cwd=workspace, capture_output=True, text=True).stdout
    assert len(listed.splitlines()) == 1
    names = {result["name"] for result in results(workspace) if result["exit_code"] == 0}
    assert {path.name for path in (workspace / "runs").iterdir() if not path.name.startswith(".")} == names
    for name in names:
        assert (workspace / "runs" / name / "reports/verify.json").exists()
    assert {"fp16", "fp32"} == {name.split("-")[2] for name in names}


def test_a_second_time_nothing_runs_that_had_ended(
    parallel: tuple[Path, "subprocess.CompletedProcess[str]"],
) -> None:
    workspace, _ = parallel
    done = sweep(
        workspace, "precision=fp16,fp32", "verify.batch=2", "model.checkpoint=mine/weights.safetensors", *JOBLIB
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(ran(workspace)) <= {"inputs", "probe", "track", "gate"}


def test_a_killed_worker_loses_nothing_that_had_finished(
    parallel: tuple[Path, "subprocess.CompletedProcess[str]"],
) -> None:
    workspace, _ = parallel
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = [sys.executable, "-m", "pipeline", "-m", *FEW, "precision.data_max=64", "decoder=rtdetrv2,dfine", *JOBLIB]
    before = last(workspace)
    started = subprocess.Popen(
        command, cwd=workspace, env=os.environ | {"PATH": path}, start_new_session=True, stdout=subprocess.DEVNULL
    )
    for _ in range(1800):  # until the first job has traced
        log = last(workspace) / "0.log"
        if last(workspace) != before and log.exists() and "Running stage 'slim'" in log.read_text():
            break
        time.sleep(0.1)
    os.killpg(started.pid, signal.SIGKILL)
    started.wait()
    done = in_workspace(workspace, *["python", *command[1:]])
    assert done.returncode == 0, done.stdout + done.stderr
    again = (last(workspace) / "0.log").read_text()
    assert "Stage 'trace' is cached - skipping run" in again, "it had ended before the kill"
    assert not list((workspace / ".dvc/tmp/workspaces").glob("*")), "what the killed sweep left is removed"


def test_a_sweep_of_which_no_job_ended_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sweep_hook, "_started", [Sweep("s", str(tmp_path), "", True, ["a=1,2"])])
    assert sweep_hook.finish() == 1
    said = capsys.readouterr()
    assert said.out.count("not ended") == 2 and "2 of 2 jobs failed: #0, #1" in said.err


def test_the_jobs_of_a_sweep_are_known_before_they_run() -> None:
    assert planned(["a=1,2", "b=x", "c=[1,2]", "+d=u,v"]) == [
        ["a=1", "b=x", "c=[1,2]", "+d=u"],
        ["a=1", "b=x", "c=[1,2]", "+d=v"],
        ["a=2", "b=x", "c=[1,2]", "+d=u"],
        ["a=2", "b=x", "c=[1,2]", "+d=v"],
    ]


def test_what_two_jobs_would_do_alike_the_first_one_does(tmp_path: Path) -> None:
    sweep = Sweep("s", str(tmp_path), "", True, ["a=1,2,3"])
    sweep.folder.mkdir(parents=True)
    assert [sweep.first_with("x", 1), sweep.first_with("x", 0), sweep.first_with("y", 2)] == [1, 1, 2]
    assert sweep.first_with("x", 1) == 1, "a job that is tried once more runs"
    note = {"overrides": [], "name": "x", "reason": None, "seconds": 0.0}
    sweep.note(note | {"number": 0, "exit_code": 0, "same_as": 1})
    assert sweep.results() == {}, "the one that runs has not ended"
    sweep.note(note | {"number": 1, "exit_code": 1, "reason": "verify: failed"})
    assert {number: result["exit_code"] for number, result in sweep.results().items()} == {0: 1, 1: 1}
    assert sweep.results()[0]["reason"] == "the same as #1"
