"""One job: what ends it before anything runs, and Ctrl-C."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pipeline.run
from tests.configurations import composed
from tests.messages import expect
from tests.pipeline.small_project import Ran, commit, environment, line_with, make_chain
from tests.waiting import HANG_S
from truehalf.files import write_text

JOB = [sys.executable, "-m", "pipeline"]


@pytest.mark.slow
def test_a_run_that_is_stopped_leaves_what_an_earlier_one_said(tmp_path: Path) -> None:
    project, ran = make_chain(tmp_path / "project", tracked=True), Ran(tmp_path / "ran")
    told = environment(ran.path)
    subprocess.run(JOB, cwd=project, env=told, check=True, capture_output=True)
    (said,) = (project / "runs").glob("*/reports/verify.json")
    before = said.stat().st_mtime_ns

    with (project / "work.py").open("a") as work:
        work.write("# another program, so that its stages run again\n")
    commit(project, "another program")
    ran.hold("own-null")
    stopped = subprocess.Popen(
        JOB,
        cwd=project,
        env=told,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background job ignores it
        start_new_session=True,
    )
    ran.wait_for("own-null", times=2)
    subprocess.run(["kill", "-INT", "--", f"-{stopped.pid}"], check=True)
    output, _ = stopped.communicate(timeout=HANG_S)
    assert stopped.returncode == 130, output
    assert said.stat().st_mtime_ns == before and [said] == list((project / "runs").glob("*/reports/verify.json"))


def test_ctrl_c_after_the_run_was_logged_ends_it_as_ctrl_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep goes on after a run that failed, and not after Ctrl-C."""

    def logged_then_stopped(module: list[str], place: Any, quiet: bool = False) -> int:
        if module[:2] == ["dvc", "repro"]:
            write_text(tmp_path / "reports" / "track.json", "{}")
            return 130
        return 0

    monkeypatch.setattr(pipeline.run, "_execute", logged_then_stopped)
    assert pipeline.run.run(tmp_path, composed()) == 130


def test_a_lock_file_that_is_broken_ends_it_before_anything_runs(tmp_path: Path) -> None:
    project, ran = make_chain(tmp_path / "project"), Ran(tmp_path / "ran")
    (project / "dvc.lock").write_text("schema: '2.0'\n<<<<<<< HEAD\nstages: {\n")
    for told in ([], ["-m", "hydra/launcher=joblib", "seed=1,2"]):
        done = subprocess.run([*JOB, *told], cwd=project, env=environment(ran.path), capture_output=True, text=True)
        said = done.stderr + done.stdout
        expect(next(line for line in said.splitlines() if "dvc.lock" in line), "file-unreadable", "dvc.lock", "line 3")
        assert done.returncode == 2 and not ran.names() and "Traceback" not in done.stderr


def test_a_server_without_an_address_ends_it_before_anything_runs(tmp_path: Path) -> None:
    project, ran = make_chain(tmp_path / "project"), Ran(tmp_path / "ran")
    told = {key: value for key, value in environment(ran.path).items() if key != "MLFLOW_TRACKING_URI"}
    done = subprocess.run([*JOB, "tracking=remote"], cwd=project, env=told, capture_output=True, text=True)
    assert done.returncode == 2 and not ran.names()
    expect(line_with("needs-value", done.stderr), None, "tracking.uri_env", "MLFLOW_TRACKING_URI", "tracking=local")
