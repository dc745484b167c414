"""The whole chain on the embedded detectors: real DVC, real MLflow, real ONNX Runtime, real weights, fewer samples."""

import json
import re
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import yaml

from tests.conftest import in_workspace

pytestmark = pytest.mark.slow

METRICS = {
    *("verify/ap50_fp32", "verify/ap50", "verify/matched_fraction", "verify/box_error_px_p99"),
    *("verify/score_error_p99", "verify/max_abs_error/logits", "verify/max_abs_error/boxes"),
    *("fp16/nodes_fp16_fraction", "cast_cleanup/casts_before", "cast_cleanup/casts_after"),
    *("size_mb/trace", "size_mb/cast_cleanup", "seconds/trace", "seconds/verify"),
}
HOPS = ("trace", "slim", "fp16", "cast_cleanup")
ALWAYS_CHANGED = {"inputs", "probe", "track", "gate"}


def pipeline(workspace: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return in_workspace(workspace, "python", "-m", "pipeline", *arguments)


def ran(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Stages that DVC ran, in order."""
    return re.findall(r"Running stage '(\w+)'", done.stdout)


def report(workspace: Path, stage: str) -> dict:
    return json.loads((workspace / "reports" / f"{stage}.json").read_text())


def query(workspace: Path, sql: str) -> list[tuple]:
    with sqlite3.connect(workspace / "mlflow.db") as database:
        return database.execute(sql).fetchall()


def test_the_sweep_makes_four_comparable_runs(swept: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    workspace, done = swept
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    runs = query(workspace, "select name, status from runs where name not like 'sweep-%' order by start_time")
    assert runs == [
        (f"ltdetr_nano-{decoder}-{precision}", "FINISHED")
        for precision in ("fp32", "fp16")
        for decoder in ("rtdetrv2", "dfine")
    ]
    for table in ("params", "metrics"):
        names = query(
            workspace, f"select run_uuid, group_concat(key) from (select * from {table} order by key) group by 1"
        )
        assert len(names) == 4 and len({keys for _, keys in names}) == 1, f"{table} differ between runs"
    names = {key for (key,) in query(workspace, "select distinct key from metrics")}
    assert names >= METRICS


def test_fp32_and_fp16_share_trace_slim_and_calibrate(swept: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    stages = ran(swept[1])
    assert {stage: stages.count(stage) for stage in ("trace", "slim", "calibrate", "fp16", "verify")} == {
        "trace": 2,
        "slim": 2,
        "calibrate": 2,
        "fp16": 4,
        "verify": 4,
    }


def test_the_final_file_is_fp16_and_verified(swept: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    workspace, _ = swept
    verify = report(workspace, "verify")
    assert verify["verdict"] == "passed" and verify["evaluation"] == "emulated-fp16"
    assert verify["nan"] == 0 and verify["inf"] == 0
    assert verify["matched_fraction"] >= 0.99
    assert abs(verify["ap50_95"] - verify["ap50_95_fp32"]) <= 0.005
    assert report(workspace, "cast_cleanup")["model"]["fp16_fraction"] > 0.9
    assert report(workspace, "trace")["model"]["size_mb"] / report(workspace, "cast_cleanup")["model"]["size_mb"] > 1.8
    engine = report(workspace, "engine")
    assert engine["status"] in ("planned", "built")
    if engine["status"] == "planned":
        assert "NO ENGINE WAS BUILT" in swept[1].stdout


def test_a_second_repro_runs_only_what_always_runs(swept: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    workspace, _ = swept
    done = in_workspace(workspace, "dvc", "repro")
    assert done.returncode == 0, done.stderr
    assert set(ran(done)) == ALWAYS_CHANGED
    assert query(workspace, "select count(*) from runs") == [(5,)], "tracking is idempotent: four and the sweep's own"


def test_a_block_list_re_runs_from_fp16_on(swept: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    workspace, _ = swept
    done = pipeline(workspace, "precision.op_block_list=[Softmax]")
    assert done.returncode == 0, done.stderr
    assert set(ran(done)) == {"fp16", "cast_cleanup", "verify", "engine", "report"} | ALWAYS_CHANGED
    decisions = json.loads((workspace / "artifacts/fp16/decisions.json").read_text())
    softmax = [d for d in decisions if d["op"] == "Softmax"]
    assert softmax and all(d["precision"] == "fp32" and d["rule"] == "op_block_list" for d in softmax)
    back = pipeline(workspace)
    assert back.returncode == 0 and not set(ran(back)) - ALWAYS_CHANGED, "the earlier run comes from the cache"


def test_the_report_stands_alone(swept: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    page = (swept[0] / "reports/report.html").read_text()
    assert "data:image" in page and not re.search(r"""(src|href)=["']https?://""", page)


def test_every_hop_is_on_the_page_of_verify_which_stands_alone_and_is_tracked(
    swept: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    workspace, _ = swept
    page = (workspace / "reports/verify.html").read_text()
    assert "<script" not in page and not re.search(r"""(src|href)=["']https?://""", page)
    for expected in ("cast_cleanup", "engine", "Error along the graph", "Errors of the outputs", "data:image"):
        assert expected in page, expected
    verify = report(workspace, "verify")
    for hop in HOPS:  # all batches are asked of the file that ships
        sizes = {"1": "verified", "8": "verified"} if hop == HOPS[-1] else {"1": "verified"}
        assert verify["hops"][hop]["batches"]["sizes"] == sizes
    assert all(verify["hops"][hop]["adversarial"]["state"] == "verified" for hop in HOPS)
    tracked = {path.name for path in (workspace / "mlartifacts").rglob("*")}
    assert {"verify.html", "error_along_graph.json", "error_histogram.json", "score_error.svg"} <= tracked
    frozen = np.load(workspace / "artifacts/reference/adversarial.npz")
    assert frozen["logits"].shape[0] == 3, "white, black, noise"


def test_dvc_draws_the_plots_and_compares_the_metrics(swept: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    workspace, _ = swept
    shown = in_workspace(workspace, "dvc", "plots", "show", "-o", "drawn")
    assert shown.returncode == 0, shown.stderr
    page = (workspace / "drawn/index.html").read_text()
    assert "Relative error that each node makes by itself" in page and "Errors of the final file's outputs" in page
    assert page.count('"log10_error"') > 500 and "<DVC_METRIC" not in page
    compared = in_workspace(workspace, "dvc", "metrics", "diff", "--json")
    assert compared.returncode == 0, compared.stderr
    changes = json.loads(compared.stdout)["reports/verify.json"] if "reports/verify.json" in compared.stdout else {}
    assert "matched_fraction" in changes and "ap50_95" in changes


def test_what_must_be_verified_fails_the_run_where_nobody_did(
    swept: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    workspace, _ = swept
    done = pipeline(workspace, "verify.require=[engine,batch,trace]")
    assert report(workspace, "verify")["verdict"] == "passed" and report(workspace, "engine")["status"] != "refused"
    assert done.returncode == 1
    assert "gate: verify.require names engine, and it was not verified" in done.stderr
    assert "names batch" not in done.stderr and "names trace" not in done.stderr


def test_dvc_exp_run_composes_the_same_configuration(swept: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    workspace, _ = swept
    done = in_workspace(workspace, "dvc", "exp", "run", "-S", "precision=fp32")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "trace" not in ran(done) and report(workspace, "fp16")["status"] == "skipped"


def test_overflow_fails_without_pins_at_a_named_place_and_passes_with_our_defaults(
    swept: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    workspace, _ = swept
    naive = pipeline(workspace, "experiment=overflow_naive")
    verdict = json.loads((workspace / "artifacts/verify/verdict.json").read_text())
    assert naive.returncode == 1 and verdict["verdict"] == "failed"
    assert verdict["place"], "the run says where"
    assert "gate: verify:" in naive.stderr
    assert report(workspace, "engine")["status"] == "refused"
    assert query(workspace, "select status from runs order by start_time desc limit 1") == [("FAILED",)]

    ours = pipeline(workspace, "experiment=overflow")
    verify = report(workspace, "verify")
    assert ours.returncode == 0, ours.stderr
    assert not {"trace", "slim", "calibrate"} & set(ran(ours))
    assert abs(verify["ap50_95"] - verify["ap50_95_fp32"]) <= 0.005 and verify["nan"] == 0 and verify["inf"] == 0


def test_a_search_finds_the_parts_that_have_to_stay_fp32(
    swept: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    workspace, _ = swept
    found = pipeline(workspace, "experiment=overflow_naive", "search=frontier", "search.runs=4")
    assert found.returncode == 0, found.stdout[-3000:] + found.stderr[-3000:]
    assert report(workspace, "verify")["verdict"] == "passed", "the workspace holds the chosen run"
    (line,) = re.findall(r"search: the cheapest run inside the gates: (\d) of 8 parts: (\S+)", found.stdout)
    kept = yaml.safe_load((Path(line[1]) / "experiment.yaml").read_text())["precision"]
    params = yaml.safe_load((workspace / "params.yaml").read_text())
    assert kept["node_block_list"] + kept["scope_block_list"]
    assert all(params["precision"][name] == kept[name] for name in kept) and params["search"]["name"] == "none"
    verdicts = query(
        workspace,
        "select v.value, count(*) from tags p join tags v using (run_uuid) join runs r on r.run_uuid = p.value "
        "where p.key = 'mlflow.parentRunId' and v.key = 'verdict' and r.name like 'search-%' group by 1 order by 1",
    )
    assert sum(count for _, count in verdicts) >= 3 and dict(verdicts)["passed"] >= 1


def test_weights_of_another_architecture_name_the_tensors(swept: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    workspace, _ = swept
    done = pipeline(workspace, "decoder=dfine", "model.checkpoint=examples/digits/weights/rtdetrv2.safetensors")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert re.search(r"trace: .*rtdetrv2\.safetensors", done.stderr) and "decoder" in done.stderr


def test_corrupt_weights_are_refused_and_the_last_good_files_stay(
    swept: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    workspace, _ = swept
    good = (workspace / "artifacts/trace/model.onnx").read_bytes()
    whole = (workspace / "examples/digits/weights/dfine.safetensors").read_bytes()
    (workspace / "cut.safetensors").write_bytes(whole[: len(whole) // 2])
    done = pipeline(workspace, "decoder=dfine", "model.checkpoint=cut.safetensors")
    assert done.returncode == 1 and "Traceback" not in done.stderr and "cut.safetensors" in done.stderr
    assert (workspace / "artifacts/trace/model.onnx").read_bytes() == good


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_is_stopped_is_recovered_by_the_next(
    swept: tuple[Path, subprocess.CompletedProcess[str]], how: signal.Signals
) -> None:
    workspace, _ = swept
    command = [sys.executable, "-m", "pipeline", f"seed={int(how)}"]  # another seed: everything runs
    process = subprocess.Popen(
        command,
        cwd=workspace,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background job ignores it
    )
    partial = workspace / "artifacts/trace.partial"
    give_up = time.monotonic() + 120
    while not partial.exists() and time.monotonic() < give_up:
        time.sleep(0.02)
    assert partial.exists()
    subprocess.run(["kill", f"-{int(how)}", "--", f"-{process.pid}"], check=True)
    process.communicate(timeout=60)
    assert process.returncode == (130 if how is signal.SIGINT else -9)
    if how is signal.SIGINT:
        assert (workspace / "artifacts/trace/model.onnx").exists(), "the last good files are back in place"
    again = pipeline(workspace)
    assert again.returncode == 0, again.stderr
    assert not list(workspace.glob("artifacts/*.partial"))


def test_two_runs_at_once_take_turns(swept: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    workspace, _ = swept
    commands = [[sys.executable, "-m", "pipeline", f"decoder={name}"] for name in ("dfine", "rtdetrv2")]
    both = [
        subprocess.Popen(command, cwd=workspace, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for command in commands
    ]
    outputs = [process.communicate(timeout=300) for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    assert sum("another run is at work in this workspace" in errors for _, errors in outputs) == 1
    assert in_workspace(workspace, "dvc", "status").returncode == 0


def test_a_crash_is_tracked_drawn_and_summed_up(swept: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    workspace, _ = swept
    assert pipeline(workspace).returncode == 0
    code = workspace / "stages/slim.py"
    sound = code.read_text()
    try:
        code.write_text(sound.replace("def run(stage: Stage)", "def run(stage: Stage, unexpected)"))
        done = pipeline(workspace)
    finally:
        code.write_text(sound)
    assert done.returncode == 1 and "not run" in done.stdout and "logged as a failed run" in done.stdout
    assert "The run stopped in slim" in (workspace / "reports/report.html").read_text()
    assert (workspace / "artifacts/slim/model.onnx").exists(), "the last good files are back in place"


def test_a_typo_in_a_block_list_is_said(swept: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    done = pipeline(swept[0], "precision.node_block_list=[no_such_node]")
    assert done.returncode == 0 and "no_such_node" in done.stdout and "matches no node" in done.stdout
