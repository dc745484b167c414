"""Sweeps whose processes die: what had ended is kept, the table says which had not, and DVC is alone in a workspace."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from hydra.errors import CompactHydraException

from pipeline.sweep.isolated import remove_abandoned
from pipeline.sweep.launcher_patches import _reason, patch_launcher
from pipeline.sweep.sweep import Sweep
from tests.conftest import in_workspace
from tests.messages import expect
from tests.pipeline.small_project import Ran, environment, last_start, line_with, make_chain
from tests.waiting import HANG_S, until
from truehalf.codes import codes_in

JOBLIB = ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
SUBMITIT = ("hydra/launcher=submitit_local",)
# What Slurm's programs do of a batch script: run each task of its array in the submitter's folder and environment.
SLURM = {
    "sbatch": """\
tasks=$(sed -n 's/^#SBATCH --array=0-\\([0-9]*\\)%.*/\\1/p' "$1")
export SLURM_JOB_ID=77 SLURM_ARRAY_JOB_ID=77 SLURM_NTASKS=1 SLURM_JOB_NUM_NODES=1 SLURM_NODEID=0 SLURM_PROCID=0
script=$(cat "$1")  # as Slurm does: the submitter moves its file as soon as this program has ended
for task in $(seq 0 "$tasks"); do SLURM_ARRAY_TASK_ID=$task bash -c "$script" >/dev/null 2>&1 & done
echo "Submitted batch job 77"
""",
    "srun": """\
while [ "${1#--}" != "$1" ]; do
  case $1 in --output) out=$2; shift 2 ;; --error) err=$2; shift 2 ;; *) shift ;; esac
done
place() { echo "$1" | sed "s/%A/77/g; s/%a/$SLURM_ARRAY_TASK_ID/g; s/%t/0/"; }
mkdir -p "$(dirname "$(place "$out")")"  # the submitter makes it when sbatch has ended, which may be later
exec "$@" >"$(place "$out")" 2>"$(place "$err")"
""",
    "sacct": "echo 'JobID|State|NodeList'; echo '77_[0-1]|RUNNING|here'\n",
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ran]:
    folder = tmp_path_factory.mktemp("launched")
    return make_chain(folder / "workspace"), Ran(folder / "ran")


def start(workspace: Path, ran: Ran, *arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "pipeline", "-m", *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=workspace, env=environment(ran.path), stdout=pipe, stderr=pipe, text=True)


def worker_of(process: int, program: str) -> psutil.Process:
    """The launcher's process above a stage's."""
    return next(parent for parent in psutil.Process(process).parents() if program in " ".join(parent.cmdline()))


def results(workspace: Path) -> dict[int, dict]:
    found = [json.loads(path.read_text()) for path in last_start(workspace).glob("*.json")]
    return {result["number"]: result for result in found}


def test_submitit_runs_the_jobs_side_by_side_on_one_cache(project: tuple[Path, Ran]) -> None:
    workspace, ran = project
    ran.forget()
    told = ("seed=1", "precision.data_max=128,256", *SUBMITIT)
    done = in_workspace(workspace, "python", "-m", "pipeline", "-m", *told, env={"RAN": str(ran.path)})
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(ran.names()) == ["common-1", "own-128", "own-256"]
    for result in results(workspace).values():
        verify = json.loads((workspace / "runs" / result["name"] / "reports/verify.json").read_text())
        assert f"precision.data_max={verify['of'].removeprefix('own-').removesuffix('.0')}" in result["overrides"]
    assert not list((workspace / ".dvc/tmp/workspaces").iterdir())
    assert "│   1 │ precision.data_max=256 │ done " in done.stdout


@pytest.mark.slow
def test_a_job_of_submitit_that_is_killed_stops_no_other(project: tuple[Path, Ran]) -> None:
    workspace, ran = project
    ran.hold("own-1")
    sweep = start(workspace, ran, "precision.data_max=1,2", *SUBMITIT)
    stage = ran.wait_for("own-1")
    worker_of(stage, "submitit.core._submit").kill()
    out, err = sweep.communicate(timeout=HANG_S)
    psutil.Process(stage).kill()
    ran.release("own-1")
    assert sweep.returncode == 1 and "Traceback" not in out + err
    assert re.findall(r"\d+", line_with("jobs-failed", err)) == ["1", "2", "0"], "1 of 2: #0"
    noted = results(workspace)
    assert noted[1]["exit_code"] == 0, "it went on, though the sweep had waited for the other first"
    assert noted[0]["exit_code"] == 1 and codes_in(noted[0]["reason"]) == ["job-lost"]
    assert any(Path(word).is_file() for word in noted[0]["reason"].split()), "its log is named"
    assert "│   0 │ precision.data_max=1 │ failed" in out


@pytest.mark.slow
def test_a_job_that_is_preempted_goes_on_from_what_had_finished(project: tuple[Path, Ran]) -> None:
    """Slurm's signal, as submitit_local takes it: the job is put back, and runs once more."""
    workspace, ran = project
    ran.hold("own-9")
    sweep = start(workspace, ran, "seed=9", "precision.data_max=9", *SUBMITIT)
    worker_of(ran.wait_for("own-9"), "submitit.core._submit").send_signal(signal.SIGUSR2)
    ran.wait_for("own-9", times=2)
    ran.release("own-9")
    out, err = sweep.communicate(timeout=HANG_S)
    assert sweep.returncode == 0, out + err
    assert ran.names().count("common-9") == 1 and results(workspace)[0]["exit_code"] == 0


@pytest.mark.slow
def test_a_killed_worker_of_joblib_ends_the_sweep_with_its_table(project: tuple[Path, Ran]) -> None:
    workspace, ran = project
    ran.hold("own-3")
    sweep = start(workspace, ran, "precision.data_max=4,3,5", *JOBLIB)
    stage = ran.wait_for("own-3")
    ran.wait_for("own-5")  # so that 4 has ended
    dvc = worker_of(stage, "pipeline.cache.shared_repro")
    worker_of(stage, "loky").kill()
    out, err = sweep.communicate(timeout=HANG_S)
    assert sweep.returncode == 1 and "Traceback" not in out + err
    expect(line_with("launcher-failed", err), None, "JoblibLauncher", "TerminatedWorkerError")
    assert results(workspace)[0]["exit_code"] == 0
    assert "│   0 │ precision.data_max=4 │ done" in out and "│   1 │ precision.data_max=3 │ not ended" in out
    _wait_for_the_orphan(workspace, ran, dvc)


def _wait_for_the_orphan(workspace: Path, ran: Ran, dvc: psutil.Process) -> None:
    """DVC of the killed worker goes on. The same sweep again neither removes its workspace nor repeats its stage."""
    assert Path(dvc.cwd()).name not in remove_abandoned(workspace) and Path(dvc.cwd()).is_dir()
    again = start(workspace, ran, "precision.data_max=4,3,5", *JOBLIB)
    ran.wait_for("own-5")
    assert dvc.is_running() and Path(dvc.cwd()).is_dir()
    ran.release("own-3")
    out, err = again.communicate(timeout=HANG_S)
    assert again.returncode == 0, out + err
    assert ran.names().count("own-3") == 1 and ran.names().count("own-4") == 1


@pytest.mark.slow
def test_the_same_sweep_started_beside_itself_waits_and_loses_nothing(project: tuple[Path, Ran]) -> None:
    workspace, ran = project
    ran.hold("own-31")
    told = ("precision.data_max=30,31", *JOBLIB)
    first = start(workspace, ran, *told)
    ran.wait_for("own-31")
    begun = last_start(workspace)
    second = start(workspace, ran, *told)
    assert second.stderr
    said = next(line for line in second.stderr if "waits-for-another" in codes_in(line))
    expect(said, None, "sweep", begun.parent.name)
    assert last_start(workspace) == begun and (begun / "1.log").exists()
    ran.release("own-31")
    for sweep in (first, second):
        out, err = sweep.communicate(timeout=HANG_S)
        assert sweep.returncode == 0, out + err
    assert last_start(workspace) != begun, "each start has a folder of its own"
    assert [{path.name for path in place.glob("*.json")} for place in begun.parent.glob("*/")] == [
        {"0.json", "1.json"}
    ] * 2
    assert ran.names().count("own-30") == ran.names().count("own-31") == 1


@pytest.mark.slow
def test_jobs_that_outlive_what_started_them_leave_the_next_start_alone(project: tuple[Path, Ran]) -> None:
    workspace, ran = project
    ran.hold("own-32")
    told = ("precision.data_max=32", *SUBMITIT)
    sweep = start(workspace, ran, *told)
    worker = worker_of(ran.wait_for("own-32"), "submitit.core._submit")
    sweep.kill()
    sweep.wait()
    begun = last_start(workspace)
    again = start(workspace, ran, *told)
    until(lambda: last_start(workspace) != begun, "the next start")
    assert worker.is_running() and (begun / "0.log").exists() and not results(workspace)
    ran.release("own-32")
    out, err = again.communicate(timeout=HANG_S)
    assert again.returncode == 0, out + err
    assert (begun / "0.json").exists() and results(workspace)[0]["exit_code"] == 0
    assert ran.names().count("own-32") == 1, "the second job waited for the first one, and took what it made"


@pytest.mark.slow
def test_the_jobs_of_a_slurm_array(project: tuple[Path, Ran], tmp_path: Path) -> None:
    workspace, ran = project
    for name, text in SLURM.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}")
        (tmp_path / name).chmod(0o755)
    of_slurm = {"partition": "gpu", "gpus_per_node": 1, "cpus_per_task": 4, "mem_gb": 16, "timeout_min": 90}
    options = [f"hydra.launcher.{key}={value}" for key, value in of_slurm.items()]
    command = ["-m", "pipeline", "-m", "hydra/launcher=submitit_slurm", *options, "precision.data_max=10,11"]
    path = os.pathsep.join([str(tmp_path), str(Path(sys.executable).parent), os.environ["PATH"]])
    env = {"PATH": path, "RAN": str(ran.path)}
    done = subprocess.run(
        [sys.executable, *command], cwd=workspace, env=os.environ | env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert {"own-10", "own-11"} <= set(ran.names()) and "│   1 │ precision.data_max=11 │ done " in done.stdout
    (script,) = (workspace / "runs/.hydra/.submitit").rglob("77_submission.sh")
    for line in ("array=0-1%2", "partition=gpu", "gpus-per-node=1", "cpus-per-task=4", "mem=16GB", "time=90"):
        assert f"#SBATCH --{line}\n" in script.read_text()
    assert "--export" not in script.read_text(), "by default sbatch hands the environment on, and with it the sweep"


def test_what_hydra_refuses_is_said_without_a_traceback(project: tuple[Path, Ran]) -> None:
    workspace, _ = project
    path = os.pathsep.join([str(Path(sys.executable).parent), "/usr/bin", "/bin"])
    told = ("hydra/launcher=submitit_slurm", "precision=fp16,fp32")
    done = in_workspace(workspace, sys.executable, "-m", "pipeline", "-m", *told, env={"PATH": path})
    assert done.returncode == 1 and "srun" in done.stderr and "Traceback" not in done.stderr


class Refused:
    """A launcher that cannot reach its cluster, which joblib and submitit here cannot be."""

    def launch(self, job_overrides: Any, initial_job_idx: int) -> None:
        raise OSError("no answer from http://u:hid@den@host/x")


def test_why_a_launcher_gave_up_or_lost_a_job_is_said_without_passwords(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Refused, "launch", Refused.launch)  # put back what `patch_launcher` replaces
    patch_launcher(f"{__name__}.Refused", Sweep("sweep-x", str(tmp_path), "", True, []), jobs := [])
    with pytest.raises(CompactHydraException) as raised:
        Refused().launch([["seed=1"]], initial_job_idx=0)
    assert jobs == [["seed=1"]]
    expect(str(raised.value), "launcher-failed", "Refused", "OSError", "http://***@host/x")
    (tmp_path / "result").touch()
    job = SimpleNamespace(job_id=7, paths=SimpleNamespace(result_pickle=tmp_path / "result", stderr="err"))
    reason = _reason(job, OSError("a traceback\nhttp://u:hid@den@host/x"))
    expect(reason, None, "submitit", 7, "http://***@host/x", "err")
    assert "traceback" not in reason
    for said in (str(raised.value), reason):
        assert "hid" not in said and "den" not in said
