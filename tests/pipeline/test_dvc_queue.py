"""`dvc exp run --queue`: DVC's own experiments compose conf/, share the cache, and are logged where they are told."""

import json
import sqlite3
from pathlib import Path

import pytest

from tests.conftest import in_workspace
from tests.pipeline.small_project import Ran, make_chain
from tests.waiting import HANG_S


@pytest.mark.slow
def test_queued_experiments_run_and_are_kept(tmp_path: Path) -> None:
    workspace, ran = make_chain(tmp_path / "workspace", tracked=True), Ran(tmp_path / "ran")
    env = {"RAN": str(ran.path), "TRUEHALF_PROJECT": str(workspace)}
    before = (workspace / "params.yaml").read_bytes()
    for command in (
        ("exp", "run", "--queue", "-S", "precision.data_max=128", "-S", "decoder=rtdetrv2"),
        ("exp", "run", "--run-all", "--jobs", "1"),
    ):
        with (tmp_path / "said").open("w+") as said:  # a pipe would be held open by DVC's worker
            done = in_workspace(
                workspace, "dvc", *command, env=env, stdout=said, stderr=said, capture_output=False, timeout=HANG_S
            )
        assert done.returncode == 0, (tmp_path / "said").read_text()
    assert sorted(ran.names()) == ["common-0", "own-128"]
    assert (workspace / "params.yaml").read_bytes() == before and not (workspace / "artifacts").exists()
    shown = in_workspace(workspace, "dvc", "exp", "show", "--json", "--no-pager").stdout
    of = {experiment["revs"][0]["data"]["metrics"]["reports/verify.json"]["data"]["of"] for experiment in kept(shown)}
    assert of == {"own-128"}
    with sqlite3.connect(workspace / "mlflow.db") as database:
        (count,) = database.execute("select count(*) from runs").fetchone()
    assert count == 1, "TRUEHALF_PROJECT names the project; else it is logged in a folder that DVC removes"


def kept(shown: str) -> list[dict]:
    return [experiment for revision in json.loads(shown) for experiment in revision.get("experiments") or []]
