"""A sweep on a Ray cluster of two nodes, whose workers do not see the project; one of them is lost on the way."""

import json
import sqlite3

import pytest

from tests.conftest import in_workspace, make_workspace

pytestmark = pytest.mark.slow
FEW = ("model.samples.calibration=4", "model.samples.verification=4", "verify.profile=false", "verify.pictures=0")
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}


def test_two_nodes_run_the_jobs_and_send_back_what_came_of_them(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ray import cluster_utils

    workspace = make_workspace(tmp_path_factory.mktemp("ray") / "workspace")
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.chdir(elsewhere)  # the nodes start here, not in the project
    for name, value in QUIET.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        arguments = ("precision=fp16,fp32", "hydra/launcher=ray", f"hydra.launcher.address='{cluster.address}'")
        done = in_workspace(workspace, "python", "-m", "pipeline", "-m", *FEW, *arguments)
    finally:
        cluster.shutdown()
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    noted = [json.loads(path.read_text()) for path in (workspace / "runs/.sweeps").glob("*/*.json")]
    assert sorted(result["number"] for result in noted) == [0, 1] and not any(result["exit_code"] for result in noted)
    for result in noted:
        kept = workspace / "runs" / result["name"]
        assert json.loads((kept / "reports/verify.json").read_text())["verdict"] == "passed"
        assert "workspace=here" not in result["overrides"], "that is for the worker alone"
    logs = [path.read_text() for path in (workspace / "runs/.sweeps").glob("*/*.log")]
    assert len(logs) == 2 and not any(f"{workspace}/artifacts" in text for text in logs)
    assert sum(text.count("Running stage 'trace'") for text in logs) == 1, "the cache is shared, and so is its lock"
    with sqlite3.connect(workspace / "mlflow.db") as database:
        runs = database.execute("select name, status from runs where name not like 'sweep-%' order by name").fetchall()
    assert runs == [("ltdetr_nano-dfine-fp16", "FINISHED"), ("ltdetr_nano-dfine-fp32", "FINISHED")]
    assert not (workspace / "artifacts").exists() and not list(elsewhere.iterdir())
