"""Sweeps: jobs side by side, each in a workspace of its own; what several need runs once; what fails stops nobody."""

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hydra import compose, initialize_config_dir
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser

from pipeline.compose import effective
from pipeline.job import name_of
from pipeline.sweep import hook as sweep_hook
from pipeline.sweep.sweep import JobResult, Sweep
from tests.configurations import composed
from tests.conftest import ROOT, in_workspace, make_workspace
from tests.messages import expect
from tests.pipeline.small_project import Ran, last_start, line_with, make_chain
from tests.waiting import until
from truehalf.codes import codes_in
from truehalf.models.configuration import validated

FEW = (
    "--verbose",
    "model.samples.calibration=4",
    "model.samples.verification=4",
    "verify.profile=false",
    "verify.pictures=0",
)
JOBLIB = ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2")


def sweep(workspace: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return in_workspace(workspace, "python", "-m", "pipeline", "-m", *FEW, *arguments)


def results(workspace: Path) -> list[dict]:
    found = [json.loads(path.read_text()) for path in last_start(workspace).glob("*.json")]
    return sorted(found, key=lambda result: result["number"])


def ran(workspace: Path) -> list[str]:
    """Stages that a job of the last sweep executed, all jobs together."""
    logs = "".join(path.read_text() for path in last_start(workspace).glob("*.log"))
    return re.findall(r"Running stage '(\w+)'", logs)


@pytest.fixture(scope="module")
def parallel(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, "subprocess.CompletedProcess[str]"]:
    """Two precisions that share trace, slim and calibrate, and one that is refused; an edited project with a remote."""
    workspace = make_workspace(tmp_path_factory.mktemp("sweep") / "workspace")
    weights = workspace / "mine" / "weights.safetensors"
    weights.parent.mkdir()
    weights.write_bytes((workspace / "examples/digits/weights/dfine.safetensors").read_bytes())
    (workspace / ".gitignore").open("a").write("/mine/\n")
    (workspace / "params.yaml").write_text("nobody: reads this\n")
    assert in_workspace(workspace, "dvc", "remote", "add", "-q", "-d", "store", "../store").returncode == 0
    arguments = ("precision=fp16,fp32", "verify.batch=0,2", "model.checkpoint=mine/weights.safetensors")
    return workspace, sweep(workspace, *arguments, "workspace.push=true", *JOBLIB)


@pytest.mark.slow
def test_a_job_that_fails_stops_no_other_and_the_table_says_which_and_why(
    parallel: tuple[Path, "subprocess.CompletedProcess[str]"],
) -> None:
    workspace, done = parallel
    assert done.returncode == 2, done.stdout + done.stderr
    assert [result["exit_code"] for result in results(workspace)] == [2, 0, 2, 0]
    assert re.findall(r"\d+", line_with("jobs-failed", done.stderr)) == ["2", "4", "0", "2"], "2 of 4: #0, #2"
    said = [line for line in done.stdout.splitlines() if line.startswith("sweep: #") and codes_in(line)]
    for line, number in zip(sorted(said), ("#0", "#2"), strict=True):
        expect(line, "out-of-range", number, "verify.batch", 1, 0)
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.slow
def test_what_two_jobs_have_in_common_ran_once(parallel: tuple[Path, "subprocess.CompletedProcess[str]"]) -> None:
    stages = ran(parallel[0])
    counts = {stage: stages.count(stage) for stage in ("trace", "slim", "calibrate", "fp16", "verify")}
    assert counts == {"trace": 1, "slim": 1, "calibrate": 1, "fp16": 2, "verify": 2}


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_second_time_nothing_runs_that_had_ended(
    parallel: tuple[Path, "subprocess.CompletedProcess[str]"], tmp_path: Path
) -> None:
    workspace = shutil.copytree(parallel[0], tmp_path / "workspace", symlinks=True)
    done = sweep(
        workspace, "precision=fp16,fp32", "verify.batch=2", "model.checkpoint=mine/weights.safetensors", *JOBLIB
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(ran(workspace)) <= {"inputs", "probe", "track", "gate"}


@pytest.mark.slow
def test_another_machine_takes_from_the_remote_what_the_sweep_made_but_no_engine_of_another_gpu(
    parallel: tuple[Path, "subprocess.CompletedProcess[str]"], tmp_path: Path
) -> None:
    workspace, done = parallel
    assert len(re.findall(r"^remote: .*\d", done.stdout, re.MULTILINE)) == 1, "once for all jobs"
    clone = tmp_path / "elsewhere"
    subprocess.run(["git", "clone", "-q", str(workspace), str(clone)], check=True)
    (clone / "mine").mkdir()
    (clone / "mine/weights.safetensors").write_bytes((workspace / "mine/weights.safetensors").read_bytes())
    in_workspace(clone, "dvc", "remote", "add", "-q", "-d", "store", str(workspace.parent / "store"))
    chosen = ("precision=fp16", "verify.batch=2", "model.checkpoint=mine/weights.safetensors", "workspace.pull=true")
    done = in_workspace(clone, "python", "-m", "pipeline", *FEW, *chosen)
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(re.findall(r"Running stage '(\w+)'", done.stdout)) == {"inputs", "probe", "track", "gate"}
    assert json.loads((clone / "reports/verify.json").read_text())["verdict"] == "passed"
    assert (clone / "artifacts/cast_cleanup/model.onnx").exists() and (clone / "reports/report.html").exists()

    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho 'NVIDIA T4, 580.1, 7.5, 15360 MiB'\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    path = os.pathsep.join([str(tmp_path), str(Path(sys.executable).parent), os.environ["PATH"]])
    repro = ("python", "-m", "pipeline.cache.shared_repro", "--verbose", "--pull", "engine")
    done = in_workspace(clone, *repro, env={"PATH": path})
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(re.findall(r"Running stage '(\w+)'", done.stdout)) == {"inputs", "probe", "engine"}


@pytest.mark.slow
def test_a_killed_worker_loses_nothing_that_had_finished(
    parallel: tuple[Path, "subprocess.CompletedProcess[str]"], tmp_path: Path
) -> None:
    workspace = shutil.copytree(parallel[0], tmp_path / "workspace", symlinks=True)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = [sys.executable, "-m", "pipeline", "-m", *FEW, "precision.data_max=64", "decoder=rtdetrv2,dfine", *JOBLIB]
    before = last_start(workspace)
    started = subprocess.Popen(
        command, cwd=workspace, env=os.environ | {"PATH": path}, start_new_session=True, stdout=subprocess.DEVNULL
    )

    def traced() -> bool:
        log = last_start(workspace) / "0.log"
        return last_start(workspace) != before and log.exists() and "Running stage 'slim'" in log.read_text()

    until(traced, "the first job has traced", lambda: started.poll() is None)
    os.killpg(started.pid, signal.SIGKILL)
    started.wait()
    done = in_workspace(workspace, *["python", *command[1:]])
    assert done.returncode == 0, done.stdout + done.stderr
    again = (last_start(workspace) / "0.log").read_text()
    assert "Stage 'trace' is cached - skipping run" in again, "it had ended before the kill"
    assert not list((workspace / ".dvc/tmp/workspaces").glob("*")), "what the killed sweep left is removed"


def test_a_sweep_of_which_no_job_ended_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = Sweep("s", str(tmp_path), "", True, ["a=1,2"])
    monkeypatch.setattr(sweep_hook, "_started", [(sweep, [["a=1"], ["a=2"]])])
    sweep.folder.mkdir(parents=True)
    sweep.log_of(1).touch()
    monkeypatch.setenv("COLUMNS", "400")
    assert sweep_hook.finish() == 1
    said = capsys.readouterr()
    assert re.findall(r"\d+", line_with("jobs-failed", said.err)) == ["2", "2", "0", "1"], "2 of 2: #0, #1"
    rows = [line for line in said.out.splitlines() if "not ended" in line]
    assert [str(sweep.log_of(1)) in row for row in rows] == [False, True], "of the one there is nothing to read"


@pytest.mark.parametrize("wrong", [("decoder=dfine,nobody",), ("precison=fp32,fp16",), ("hydra.launcher.njobs=2",)])
def test_a_sweep_that_hydra_refuses_has_no_table(tmp_path: Path, wrong: tuple[str, ...]) -> None:
    project = make_chain(tmp_path / "project")
    done = in_workspace(project, "python", "-m", "pipeline", "-m", "hydra/launcher=joblib", *wrong)
    by_hydra = wrong[0].startswith("hydra.")  # whose exit code it is
    assert (
        done.returncode == (1 if by_hydra else 2)
        and "not ended" not in done.stdout + done.stderr
        and "Traceback" not in done.stderr
    )
    assert not list((project / "runs/.sweeps").glob("*/*/*"))


@pytest.mark.slow
def test_after_the_table_stands_what_is_not_logged(tmp_path: Path) -> None:
    project, ran = make_chain(tmp_path / "project", tracked=True), Ran(tmp_path / "ran")
    told = ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "seed=1,2", "tracking=remote")
    away = {"RAN": str(ran.path), "MLFLOW_TRACKING_URI": "http://127.0.0.1:9", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
    done = in_workspace(project, "python", "-m", "pipeline", "-m", *told, env=away)
    assert done.returncode == 0, done.stderr
    said = next(
        line for line in done.stderr.splitlines() if line.startswith("sweep: ") and "not-logged" in codes_in(line)
    )
    expect(said, None, 2, "127.0.0.1:9", "[Errno 111] Connection refused", "python -m pipeline.track --pending")


def test_the_nightly_sweep_is_eight_runs() -> None:
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        config = compose("config", overrides=["experiment=nightly"], return_hydra_config=True)
        told = [f"{key}={value}" for key, value in config.hydra.sweeper.params.items()]
        jobs = BasicSweeper.split_arguments(OverridesParser.create().parse_overrides(told), None)[0]
    runs = [effective(validated(values)) for values in (composed(*overrides) for overrides in jobs)]
    points = [(each["decoder"]["name"], each["precision"]["dtype"], each["precision"]["data_max"]) for each in runs]
    assert len(jobs) == 12 and list(dict.fromkeys(points)) == [
        (decoder, *precision)
        for decoder in ("dfine", "rtdetrv2")
        for precision in (("fp32", 512.0), ("fp16", 128.0), ("fp16", 512.0), ("fp16", 2048.0))
    ]
    assert len({name_of(each) for each in runs}) == 8


def test_the_sweep_of_an_experiment_and_what_the_command_line_changes_of_it(tmp_path: Path) -> None:
    workspace = make_chain(tmp_path / "workspace")
    told = ("experiment=nightly", "precision=fp16", "precision.data_max=2048", *JOBLIB)
    done = in_workspace(workspace, "python", "-m", "pipeline", "-m", *told, env={"RAN": str(tmp_path / "ran")})
    assert done.returncode == 0, done.stdout + done.stderr
    kept = [workspace / "runs" / job["name"] / "params.yaml" for job in results(workspace)]
    params = [yaml.safe_load(path.read_text()) for path in kept]
    assert [each["decoder"]["name"] for each in params] == ["dfine", "rtdetrv2"]
    assert {each["precision"]["data_max"] for each in params} == {2048.0}
    assert "│   1 │ decoder=rtdetrv2 │ done" in done.stdout


def test_what_two_jobs_would_do_alike_the_first_one_does(tmp_path: Path) -> None:
    sweep = Sweep("s", str(tmp_path), "", True, ["a=1,2,3"])
    sweep.folder.mkdir(parents=True)
    assert [sweep.first_with("x", 1), sweep.first_with("x", 0), sweep.first_with("y", 2)] == [1, 1, 2]
    assert sweep.first_with("x", 1) == 1, "a job that is tried once more runs"
    note = JobResult(0, [], "x", 0, 0.0)
    sweep.note(replace(note, same_as=1))
    assert sweep.results() == {}, "the one that runs has not ended"
    sweep.note(replace(note, number=1, exit_code=1, reason="verify: failed"))
    assert {number: result.exit_code for number, result in sweep.results().items()} == {0: 1, 1: 1}
    assert sweep.results()[0].same_as == 1
    expect(sweep.results()[0].reason, None, "#1")


def test_here_does_not_go_with_ray(tmp_path: Path) -> None:
    workspace = make_chain(tmp_path / "workspace")
    done = in_workspace(workspace, "python", "-m", "pipeline", "-m", "workspace=here", "hydra/launcher=ray", "seed=1,2")
    assert done.returncode == 2 and "Traceback" not in done.stdout + done.stderr
    expect(line_with("in-conflict", done.stderr), None, "workspace=here", "hydra/launcher=ray")
    assert not (workspace / "runs/.sweeps").exists()


def test_where_runs_is_no_folder_it_says_so(tmp_path: Path) -> None:
    workspace = make_chain(tmp_path / "workspace")
    (workspace / "runs").touch()
    done = in_workspace(workspace, "python", "-m", "pipeline", "-m", "seed=1,2")
    assert done.returncode == 2 and "Traceback" not in done.stdout + done.stderr
    expect(line_with("file-unwritable", done.stderr), None, "runs/", os.strerror(errno.ENOTDIR))
