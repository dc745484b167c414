"""Runs side by side: from folders and from MLflow, what distinguishes them, the page, and two runs node by node."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import mlflow
import pytest
import yaml

from pipeline.compare.compare import page, table
from pipeline.compare.compared_runs import ComparedRun, NothingToCompare, of_folders, of_mlflow
from pipeline.compare.labels import labels
from pipeline.compare.node_diff import changes, summary
from pipeline.track import SWEEP_TAG, track
from tests.configurations import composed
from tests.conftest import in_workspace
from tests.messages import expect, raises

VERIFY = {"stage": "verify", "status": "done", "verdict": "passed", "box_error_px_p99": 0.1, "score_error_p99": 0.01}


def decision(node: str, precision: str, rule: str = "none", reason: str = "") -> dict[str, Any]:
    return {"node": node, "op": "Softmax", "scope": "m", "precision": precision, "rule": rule, "reason": reason}


def made(folder: Path, *overrides: str, fp16: float = 0.99, drop: float = 0.0, **more: Any) -> Path:
    """A folder as a run leaves it."""
    (folder / "reports").mkdir(parents=True)
    (folder / "params.yaml").write_text(yaml.safe_dump(composed(*overrides)))
    placed = {"casts": 3, "cast_bytes": 2e6, "bytes": 5e6}
    reports = {
        "verify": VERIFY | {"ap50_95_drop": drop} | more.get("verify", {}),
        "fp16": {
            "stage": "fp16",
            "fp16_arithmetic": fp16,
            "costs": {"placed": placed},
        },
        "cast_cleanup": {"stage": "cast_cleanup", "model": {"size_mb": 6.0, "nodes": 10, "casts": 3}},
    }
    for stage, report in reports.items():
        (folder / "reports" / f"{stage}.json").write_text(json.dumps(report))
    (folder / "artifacts/fp16").mkdir(parents=True)
    (folder / "artifacts/fp16/decisions.json").write_text(json.dumps(more.get("decisions", [])))
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    made(tmp_path / "runs/a", "precision.data_max=128", decisions=[decision("x", "fp16"), decision("y", "fp16")])
    pinned = [decision("x", "fp32", "op_block_list", "Softmax is blocked"), decision("y", "fp16")]
    made(tmp_path / "runs/b", "precision.op_block_list=[Softmax]", fp16=0.9, drop=-0.01, decisions=pinned)
    made(tmp_path / "runs/c", "precision=fp32", fp16=0.0, drop=0.0)
    made(tmp_path / "runs/d", "decoder=rtdetrv2", drop=0.5, verify={"verdict": "failed", "status": "failed"})
    return tmp_path


def test_runs_are_told_apart_by_what_differs_and_has_an_effect(project: Path) -> None:
    assert labels(of_folders(project)) == [
        "decoder=dfine, precision=fp16, data_max=128",
        "decoder=dfine, precision=fp16, data_max=512, op_block_list=Softmax",
        "decoder=dfine, precision=fp32",
        "decoder=rtdetrv2, precision=fp16, data_max=512",
    ]


def test_the_name_of_a_model_stands_for_what_belongs_to_it(tmp_path: Path) -> None:
    made(tmp_path / "runs/a", "model=ltdetr_nano")
    made(tmp_path / "runs/b", "model=ltdetr_vit")
    assert labels(of_folders(tmp_path)) == ["model=ltdetr_nano", "model=ltdetr_vit"]
    made(tmp_path / "runs/c", "model=ltdetr_nano", "model.image_size=[64,64]")
    assert "image_size=[64, 64]" in labels(of_folders(tmp_path))[2]


def test_a_long_list_is_told_by_its_length() -> None:
    lists = [[f"node{number}" for number in range(length)] for length in (2, 40, 41)]

    def told(*values: list[str]) -> list[str]:
        runs = [
            ComparedRun(str(n), "run", {"precision.node_block_list": json.dumps(value)}, {}, "passed", lambda: None)
            for n, value in enumerate(values)
        ]
        return labels(runs)

    short, *others = told(*lists)
    assert short == "node_block_list=node0+node1"
    for label, length in zip(others, (40, 41), strict=True):
        assert label.startswith(f"node_block_list={length} ") and "node0" not in label
    first, second = told(lists[1], [*lists[1][:-1], "other"])
    assert first != second and first.startswith("node_block_list=40 ") and "node0" not in first


def test_where_lists_of_one_length_differ_other_values_stay_as_they_are() -> None:
    long = [json.dumps([f"{prefix}{'x' * 80}"]) for prefix in "ab"]
    runs = [
        ComparedRun(str(n), "run", {"precision.node_block_list": value}, {}, "passed", lambda: None)
        for n, value in enumerate([*long, "[]", "no effect"])
    ]
    first, second, *others = labels(runs)
    assert first.startswith("node_block_list=1 ") and second.startswith("node_block_list=1 ")
    assert first != second and others == ["run", "run"]


def test_what_had_to_be_verified_and_was_not_is_no_choice(tmp_path: Path) -> None:
    made(tmp_path / "runs/a", "verify.require=[engine]")
    (run,) = of_folders(tmp_path)
    assert run.verdict == "failed" and table([run])[0]["frontier"] == 0 and not table([run])[0]["chosen"]


def test_the_table_has_errors_costs_fronts_and_the_choice(project: Path) -> None:
    rows = table(of_folders(project))
    assert [row["chosen"] for row in rows] == [True, False, False, False]
    assert rows[3]["verdict"] == "failed" and rows[3]["frontier"] == 0
    assert rows[0]["fp32_share"] == pytest.approx(1.0) and rows[0]["cast_mb"] == 2.0 and "latency" not in rows[0]
    assert rows[1]["frontier"] > 0 and rows[0]["pairs"] == 9


def test_the_page_stands_alone_and_says_all_without_colour(project: Path) -> None:
    runs = of_folders(project)
    text = page(runs, table(runs), project)
    assert not re.search(r"""(src|href)=["']https?://""", text) and "<script src" not in text
    assert (
        re.search(r'class="card best">[^/]*#1<', text) and '<tr class="chosen"><td class="n" data-value="1">1 ' in text
    )
    assert '<span id="failed">1</span>' in text and text.count('<td class="failed">failed</td>') == 1
    assert "#767676" not in text and text.count("<svg") == 1
    assert text == page(runs, table(runs), project), "equal runs, equal pages"
    none = page(runs[3:], table(runs[3:]), project)
    assert 'class="card best"' not in none and '<tr class="chosen">' not in none


def test_two_runs_node_by_node(project: Path) -> None:
    a, b, c, _ = of_folders(project)
    (change,) = changes(a, b)
    assert (change.node, change.before, change.after) == ("x", "fp16", "fp32")
    assert change.why == "op_block_list: Softmax is blocked"
    ((many, what, nodes),) = summary(changes(c, a))
    expect(what, None, "fp32 -> fp16", "c")  # which has no decisions
    assert (many, nodes) == (2, "x (Softmax), y (Softmax)")
    ((many, _, nodes),) = summary([change] * 1000)  # of two models: all their nodes
    assert many == 1000 and len(nodes) < 200 and "990" in nodes
    with raises("no-decisions", "c", error=NothingToCompare):
        changes(c, c)


def test_a_run_whose_files_are_broken_is_left_out_and_named(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "runs/a/params.yaml").write_text("a: [")
    (project / "runs/b/reports/verify.json").write_text("[1]")
    (project / "runs/d/artifacts/fp16/decisions.json").write_text('[{"node": ')
    c, d = of_folders(project)
    assert (c.name, d.name) == ("c", "d")
    said = capsys.readouterr().err.splitlines()
    for line, name in zip(said, ("runs/a", "runs/b"), strict=True):
        expect(line, "file-unreadable", name)
    with raises("file-unreadable", "runs/d/artifacts/fp16/decisions.json", error=NothingToCompare):
        changes(c, d)


def test_the_numbers_of_a_crash_are_of_what_had_ended(project: Path) -> None:
    said = {"stage": "fp16", "message": "no"}
    (project / "runs/a/reports/error.json").write_text(json.dumps(said))
    crashed, b = of_folders(project)[:2]
    assert not [name for name in crashed.numbers if name.startswith(("fp16/", "accuracy/"))]
    with raises("no-decisions", "a", "fp16: no", error=NothingToCompare):
        changes(crashed, b)


def test_what_a_killed_process_left_beside_a_run_is_no_run_of_its_own(project: Path) -> None:
    """It died while it replaced the run: before the earlier one was moved away, or after."""
    shutil.copytree(project / "runs/a", project / "runs/a.partial")
    (project / "runs/b").rename(project / "runs/b.replaced")
    shutil.copytree(project / "runs/c", project / "runs/c.replaced")
    assert [run.name for run in of_folders(project)] == ["a", "b", "c", "d"]
    assert [run.name for run in of_folders(project) if run.params["precision.dtype"] == "fp32"] == ["c"]


def test_a_crash_says_why(project: Path) -> None:
    (project / "runs/a/reports/error.json").write_text(json.dumps({"stage": "trace", "message": "no <weights>\nmore"}))
    runs = of_folders(project)
    assert (runs[0].verdict, runs[0].reason) == ("crashed", "trace: no <weights>")
    assert "trace: no &lt;weights&gt;" in page(runs, table(runs), project)


def test_mlflow_says_the_same_as_the_folders(project: Path) -> None:
    folders = of_folders(project)
    for run in folders:
        place = project / "runs" / run.name
        for file in place.rglob("*"):
            if file.is_file():
                target = project / file.relative_to(place)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(file.read_bytes())
        assert track(project)["status"] == "logged"
    tracked = of_mlflow(project, "truehalf")
    by_label = dict(zip(labels(tracked), tracked, strict=True))
    for label, run in zip(labels(folders), folders, strict=True):
        assert by_label[label].numbers == run.numbers and by_label[label].verdict == run.verdict
    a, b = (by_label[label] for label in labels(folders)[:2])
    assert [change.node for change in changes(a, b)] == ["x"]
    with raises("unknown-choice", "'other'", "truehalf", error=NothingToCompare):
        of_mlflow(project, "other")


def test_a_server_that_is_down_is_a_line_without_its_password(project: Path) -> None:
    (project / "dvc.yaml").write_text("stages: {}\n")
    told = {"MLFLOW_TRACKING_URI": "http://someone:hid@den@127.0.0.1:9", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
    done = in_workspace(project, "python", "-m", "pipeline.compare", "--experiment", "truehalf", env=told)
    assert done.returncode == 2 and "Traceback" not in done.stdout + done.stderr
    assert len(done.stderr.splitlines()) == 1
    expect(done.stderr, "server-fails", "compare", "MLFLOW_TRACKING_URI", "http://***@127.0.0.1:9")
    assert "hid" not in done.stderr and "den" not in done.stderr


def test_an_experiment_without_runs_and_one_whose_runs_were_cut_off_are_told_apart(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{project / 'mlflow.db'}")
    client = mlflow.MlflowClient()
    experiment = client.create_experiment("truehalf")
    client.create_run(experiment, tags={SWEEP_TAG: "only holds its jobs together"})
    with raises("no-runs", "'truehalf'", error=NothingToCompare) as caught:
        of_mlflow(project, "truehalf")
    assert "--pending" not in str(caught.value)
    client.create_run(experiment)
    with raises("no-runs", "'truehalf'", "1", "python -m pipeline.track --pending", error=NothingToCompare):
        of_mlflow(project, "truehalf")


def test_the_command_line(project: Path) -> None:
    (project / "dvc.yaml").write_text("stages: {}\n")
    done = in_workspace(project, "python", "-m", "pipeline.compare")
    assert done.returncode == 0, done.stderr
    assert re.search(r"\*\s+1\b", done.stdout) and (project / "runs/compare.html").exists()
    done = in_workspace(project, "python", "-m", "pipeline.compare", "--diff", "a", "2")
    assert re.search(r"\b1\s+fp16 -> fp32: op_block_list: Softmax is blocked", done.stdout)
    expect(done.stdout, None, "x (Softmax)")
    done = in_workspace(project, "python", "-m", "pipeline.compare", "--diff", "a", "zz")
    assert done.returncode == 2
    expect(done.stderr, "unknown-choice", "'zz'", "a, b, c, d")
    (project / "runs/compare.html").unlink()
    (project / "runs/compare.html").mkdir()
    done = in_workspace(project, "python", "-m", "pipeline.compare")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    expect(done.stderr, "file-unwritable", project / "runs/compare.html")


def test_nothing_to_compare_says_what_makes_something(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with raises("no-runs", tmp_path / "runs", "python -m pipeline -m", "--experiment", error=NothingToCompare):
        of_folders(tmp_path)
    with raises("no-runs", tmp_path / "mlflow.db", error=NothingToCompare):
        of_mlflow(tmp_path, "truehalf")
