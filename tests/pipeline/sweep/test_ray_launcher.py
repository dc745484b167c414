"""Sweeps on a Ray cluster whose nodes are lost, whose driver is killed, and whose workers do not see the project."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.conftest import in_workspace
from tests.messages import expect
from tests.pipeline.small_project import Ran, environment, last_start, line_with, make_chain
from tests.waiting import HANG_S, until
from truehalf.codes import codes_in

QUIET = {"RAY_USAGE_STATS_ENABLED": "0"}


class RayCluster:
    """A head that takes no jobs, nodes of one CPU that start in an empty folder, and a project for their driver."""

    def __init__(self, folder: Path) -> None:
        from ray import cluster_utils

        self.workspace, self.ran = make_chain(folder / "workspace", tracked=True), Ran(folder / "ran")
        self.elsewhere = folder / "elsewhere"
        self.elsewhere.mkdir()
        os.chdir(self.elsewhere)
        os.environ |= QUIET | {"RAN": str(self.ran.path)}
        os.environ.pop("PYTHONPATH", None)  # or the nodes would have our working tree
        self.cluster = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
        self.nodes: list[Any] = []

    def want(self, nodes: int) -> None:
        while len(self.nodes) < nodes:
            self.nodes.append(self.cluster.add_node(num_cpus=1))
        while len(self.nodes) > nodes:
            self.cluster.remove_node(self.nodes.pop())
        self.cluster.wait_for_nodes()

    def lose_the_node_of(self, process: int) -> None:
        """Kill the node that a stage runs on."""
        above = {parent.pid for parent in psutil.Process(process).parents()}
        (lost,) = (node for node in self.nodes if node.all_processes["raylet"][0].process.pid in above)
        self.nodes.remove(lost)
        self.cluster.remove_node(lost, allow_graceful=False)

    def arguments(self, *further: str) -> list[str]:
        address = f"hydra.launcher.address='{self.cluster.address}'"
        return ["-m", "pipeline", "-m", "hydra/launcher=ray", address, *further]

    def start(self, *further: str) -> "subprocess.Popen[str]":
        pipe, env = subprocess.PIPE, environment(self.ran.path)
        command = [sys.executable, *self.arguments(*further)]
        return subprocess.Popen(command, cwd=self.workspace, env=env, stdout=pipe, stderr=pipe, text=True)

    def run(self, *further: str) -> "subprocess.CompletedProcess[str]":
        return in_workspace(self.workspace, "python", *self.arguments(*further), timeout=HANG_S)

    def results(self) -> dict[int, dict]:
        """What became of the jobs of the last sweep."""
        found = [json.loads(path.read_text()) for path in last_start(self.workspace).glob("*.json")]
        return {result["number"]: result for result in found}

    def kept(self, number: int) -> str:
        """The stage whose report came back from a job of the last sweep."""
        report = self.workspace / "runs" / self.results()[number]["name"] / "reports/verify.json"
        return str(json.loads(report.read_text())["of"])

    def logged(self) -> list[tuple[str, int]]:
        """Values of data_max that MLflow has runs of, each with how many of them."""
        query = "select value, count(*) from params where key = 'precision.data_max' group by value order by value"
        with sqlite3.connect(self.workspace / "mlflow.db") as database:
            return database.execute(query).fetchall()


@pytest.fixture(scope="module")
def ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    before, here = dict(os.environ), Path.cwd()
    cluster = RayCluster(tmp_path_factory.mktemp("ray"))
    try:
        yield cluster
    finally:
        cluster.cluster.shutdown()
        os.chdir(here)
        os.environ.clear()
        os.environ |= before


def gone(process: int) -> bool:
    def ended() -> bool:
        try:
            return psutil.Process(process).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    return until(ended, f"the end of process {process}")


@pytest.mark.slow
def test_a_job_whose_node_is_lost_runs_on_another(ray: RayCluster) -> None:
    ray.want(nodes=2)
    ray.ran.hold("own-1")
    sweep = ray.start("precision.data_max=1,2")
    stage = ray.ran.wait_for("own-1")
    folder = Path(psutil.Process(stage).cwd())
    assert folder.parent == Path(tempfile.gettempdir()), "a worker's folder is its own"
    ray.lose_the_node_of(stage)
    assert gone(stage), "a stage of a lost worker would hold its lock, and the job would wait for it"
    ray.ran.wait_for("own-1", times=2)
    ray.ran.release("own-1")
    out, err = sweep.communicate(timeout=HANG_S)
    assert sweep.returncode == 0, out + err
    names = ray.ran.names()
    assert [name for name in sorted(names) if name in ("own-1", "own-2")] == ["own-1", "own-1", "own-2"]
    assert names.count("common-0") <= 1, "what is shared ran once, here or for an earlier test"
    assert [ray.kept(0), ray.kept(1)] == ["own-1", "own-2"] and {("1.0", 1), ("2.0", 1)} <= {*ray.logged()}
    assert not any("workspace=here" in result["overrides"] for result in ray.results().values())
    assert not folder.exists() and not list(ray.elsewhere.iterdir())
    assert not (ray.workspace / "artifacts").exists(), "artifacts stay in the cache"


@pytest.mark.slow
def test_a_job_with_no_retries_left_fails_alone_and_with_its_reason(ray: RayCluster) -> None:
    ray.want(nodes=2)
    ray.ran.hold("own-3")
    sweep = ray.start("precision.data_max=3,4", "hydra.launcher.retries=0")
    ray.lose_the_node_of(ray.ran.wait_for("own-3"))
    out, err = sweep.communicate(timeout=HANG_S)
    ray.ran.release("own-3")
    assert sweep.returncode == 1 and "Traceback" not in out + err
    assert re.findall(r"\d+", line_with("jobs-failed", err)) == ["1", "2", "0"], "1 of 2: #0"
    assert re.search(r"│   0 │ precision.data_max=3 │ failed │ +0 │ \w+", out), out
    assert codes_in(ray.results()[0]["reason"]) == ["job-lost"] and ray.kept(1) == "own-4"


@pytest.mark.slow
def test_after_the_driver_was_killed_only_what_is_missing_runs(ray: RayCluster) -> None:
    ray.want(nodes=1)
    ray.ran.hold("own-6")
    sweep = ray.start("precision.data_max=5,6")
    stage = ray.ran.wait_for("own-6")
    sweep.send_signal(signal.SIGKILL)
    sweep.communicate(timeout=HANG_S)
    assert ray.kept(0) == "own-5" and 1 not in ray.results()
    assert gone(stage), "Ray ends the workers of a driver that is gone"
    ray.ran.release("own-6")
    again = ray.run("precision.data_max=5,6")
    assert again.returncode == 0, again.stdout + again.stderr
    assert [ray.ran.names().count(name) for name in ("own-5", "own-6")] == [1, 2]
    assert [ray.kept(0), ray.kept(1)] == ["own-5", "own-6"]


@pytest.mark.slow
def test_jobs_that_differ_in_nothing_that_has_an_effect_are_one(
    ray: RayCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")  # so that no path of the table is broken
    ray.want(nodes=1)
    ray.ran.forget()
    done = ray.run("precision=fp32", "seed=9", "precision.data_max=91,92", "verify.batch=2,0")
    assert done.returncode == 2 and "Traceback" not in done.stdout + done.stderr, done.stdout + done.stderr
    assert [name.rpartition("-")[0] for name in ray.ran.names()] == ["common", "own"], "the other two were refused"
    results = ray.results()
    assert results[2]["same_as"] == 0 and results[2]["name"] == results[0]["name"]
    assert re.search(r"│   2 │ precision.data_max=92 verify.batch=2 │ done .*│[^│]* #0\b[^│]* runs/", done.stdout)
    assert [results[number]["exit_code"] for number in (0, 1, 3)] == [0, 2, 2]


@pytest.fixture
def blind(ray: RayCluster) -> Iterator[list[str]]:
    """The one node of the cluster does not see the project, or is told not to: then what a sweep is to be told."""
    ray.want(nodes=0)
    hide = f"mount -t tmpfs none {ray.workspace} && exec"
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:  # containers may forbid it
        ray.want(nodes=1)
        yield ["hydra.launcher.share_cache=false"]
        ray.want(nodes=0)
        return
    start = f"{hide} {sys.executable} -m ray.scripts.scripts start --address={ray.cluster.address} --num-cpus=1 --block"
    node = subprocess.Popen(["unshare", "--mount", "sh", "-c", start], stdout=subprocess.DEVNULL)
    try:
        yield []
    finally:
        node.terminate()
        node.wait(timeout=HANG_S)


@pytest.mark.slow
def test_what_a_worker_without_the_cache_made_is_in_the_cache_afterwards(ray: RayCluster, blind: list[str]) -> None:
    ray.ran.forget()
    weights = ray.workspace / "mine" / "weights.safetensors"
    weights.parent.mkdir()
    weights.write_bytes(b"that git ignores and the configuration names: a run without them is refused")
    (ray.workspace / ".git/info/exclude").write_text("/mine/\n")
    told = ("seed=7", "precision.data_max=7,8", "model.checkpoint=mine/weights.safetensors")
    done = ray.run(*told, *blind)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ray.ran.names() == ["common-7", "own-7", "common-7", "own-8"], "each job had a cache of its own"
    assert [ray.kept(0), ray.kept(1)] == ["own-7", "own-8"]
    assert {("7.0", 1), ("8.0", 1)} <= set(ray.logged()), "from here, as the worker has no file of MLflow's"
    assert not list((ray.workspace / "runs/.pending").glob("*"))
    here = in_workspace(ray.workspace, "python", "-m", "pipeline", "-m", *told, "hydra/launcher=joblib")
    assert here.returncode == 0, here.stdout + here.stderr
    assert len(ray.ran.names()) == 4, "the cache has all that the workers made, and knows what it was made of"
    assert {("7.0", 1), ("8.0", 1)} <= set(ray.logged())


def test_a_cluster_that_is_not_there_is_said_at_once(tmp_path: Path) -> None:
    project = make_chain(tmp_path / "project")
    told = ("hydra/launcher=ray", "hydra.launcher.address='127.0.0.1:9'", "seed=1,2")
    done = in_workspace(project, "python", "-m", "pipeline", "-m", *told)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    said = line_with("launcher-failed", done.stderr)
    expect(said, None, "127.0.0.1:9", "hydra.launcher.address", "[Errno 111] Connection refused")
