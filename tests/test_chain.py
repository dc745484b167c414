"""The whole chain on the embedded detectors: real DVC, real MLflow, real ONNX Runtime, real weights, fewer samples."""

import json
import os
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pipeline.run_record import Run as RunRecord
from tests.conftest import ROOT, Run, in_workspace
from tests.in_process import report, run_stages
from tests.messages import expect
from tests.tiers import first_of
from tests.waiting import HANG_S, until
from truehalf.codes import codes_in

METRICS = {
    *("ap", "ap_fp32", "matched", "box_p99", "score_p99", "fp16", "fp16_nodes", "casts", "mb", "mb_fp32", "seconds"),
    *("seconds/trace", "seconds/verify"),
}
MEASURED_STAGES = ("trace", "slim", "fp16", "cast_cleanup")
# Commands of the README that are run here.
AGAIN, EXPERIMENT = "dvc repro", "dvc exp run -S precision=fp32"
OVERFLOW, NO_OVERFLOW = "python -m pipeline experiment=overflow_naive", "python -m pipeline experiment=overflow"
ALWAYS_CHANGED = {"inputs", "finish"}


def pipeline(workspace: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    done = in_workspace(workspace, "python", "-m", "pipeline", "--verbose", *arguments)
    assert "part-missing" not in done.stdout + done.stderr, "an advisory part that raises ends no run, and is a defect"
    return done


def ran(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Stages that DVC ran, in order, as it says itself (`--verbose`)."""
    return re.findall(r"Running stage '(\w+)'", done.stdout)


def query(workspace: Path, sql: str) -> list[tuple]:
    with sqlite3.connect(workspace / "mlflow.db") as database:
        return database.execute(sql).fetchall()


@pytest.mark.slow
def test_the_sweep_makes_four_comparable_runs(swept: Run) -> None:
    workspace, done = swept
    assert done.returncode == 0 and "part-missing" not in done.stdout, done.stdout[-3000:] + done.stderr[-3000:]
    runs = query(workspace, "select name, status from runs where name not like 'sweep-%' order by start_time")
    assert runs == [
        (f"ltdetr_nano-{decoder}-{precision}", "FINISHED")
        for precision in ("fp32", "fp16")
        for decoder in ("dfine", "rtdetrv2")
    ]
    for table in ("params", "metrics"):
        names = query(
            workspace, f"select run_uuid, group_concat(key) from (select * from {table} order by key) group by 1"
        )
        assert len(names) == 4 and len({keys for _, keys in names}) == 1, f"{table} differ between runs"
    names = {key for (key,) in query(workspace, "select distinct key from metrics")}
    assert names >= METRICS


@pytest.mark.slow
def test_fp32_and_fp16_share_trace_slim_and_calibrate(swept: Run) -> None:
    stages = ran(swept[1])
    assert {stage: stages.count(stage) for stage in ("trace", "slim", "calibrate", "fp16", "verify")} == {
        "trace": 2,
        "slim": 2,
        "calibrate": 2,
        "fp16": 4,
        "verify": 4,
    }


def test_the_final_file_is_fp16_and_verified(chain: Run) -> None:
    workspace, _ = chain
    verify = report(workspace, "verify")
    assert verify["verdict"] == "passed" and verify["evaluation"] == "emulated-fp16"
    assert verify["nan"] == 0 and verify["inf"] == 0
    assert verify["matched_fraction"] >= 0.99
    assert abs(verify["ap50_95"] - verify["ap50_95_fp32"]) <= 0.005
    assert report(workspace, "cast_cleanup")["model"]["fp16_fraction"] > 0.9
    assert report(workspace, "trace")["model"]["size_mb"] / report(workspace, "cast_cleanup")["model"]["size_mb"] > 1.8
    engine = report(workspace, "engine")
    assert engine["status"] in ("planned", "compiled", "built")
    if engine["status"] != "built":
        assert "artifacts/engine/plan.json" in chain[1].stdout


def test_a_second_repro_runs_only_what_always_runs(after_chain: Path) -> None:
    workspace = after_chain
    done = in_workspace(workspace, *AGAIN.split())
    assert done.returncode == 0, done.stderr
    assert set(ran(done)) == ALWAYS_CHANGED
    assert query(workspace, "select count(*) from runs") == [(1,)], "tracking is idempotent"


@pytest.mark.slow
def test_a_block_list_re_runs_from_fp16_on(after_chain: Path) -> None:
    workspace = after_chain
    done = pipeline(workspace, "precision.op_block_list=[Softmax]")
    assert done.returncode == 0, done.stderr
    assert set(ran(done)) == {"fp16", "cast_cleanup", "verify", "engine", "gate"} | ALWAYS_CHANGED
    decisions = json.loads((workspace / "artifacts/fp16/decisions.json").read_text())
    softmax = [d for d in decisions if d["op"] == "Softmax"]
    assert softmax and all(d["precision"] == "fp32" and d["rule"] == "op_block_list" for d in softmax)
    back = pipeline(workspace)
    assert back.returncode == 0 and not set(ran(back)) - ALWAYS_CHANGED - {"gate"}, "the earlier run is in the cache"


def test_the_report_stands_alone(chain: Run) -> None:
    page = (chain[0] / "reports/report.html").read_text()
    assert "data:image" in page and not re.search(r"""(src|href)=["']https?://""", page)


def test_what_verify_found_is_on_the_page_and_tracked(
    chain: Run,
) -> None:
    workspace, _ = chain
    page = (workspace / "reports/report.html").read_text()
    assert "<script" not in page and not re.search(r"""(src|href)=["']https?://""", page)
    for expected in ("cast_cleanup", "engine", "data:image"):
        assert expected in page, expected
    verify = report(workspace, "verify")
    for name in MEASURED_STAGES:  # all batches are asked of the file that ships, whose bytes fp16 has
        sizes = {"1": "verified", "8": "verified"} if name not in ("trace", "slim") else {"1": "verified"}
        assert verify["stages"][name]["batches"]["sizes"] == sizes
    assert all(verify["stages"][name]["adversarial"]["state"] == "verified" for name in MEASURED_STAGES)
    tracked = {path.name for path in (workspace / "mlartifacts").rglob("*")}
    assert {"index.html", "sample_1.svg"} <= tracked
    frozen = np.load(workspace / "artifacts/reference/adversarial.npz")
    assert frozen["logits"].shape[0] == 3, "white, black, noise"


def test_dvc_compares_the_metrics(after_chain: Path) -> None:
    workspace = after_chain
    compared = in_workspace(workspace, "dvc", "metrics", "diff", "--json")
    assert compared.returncode == 0, compared.stderr
    assert json.loads(compared.stdout).keys() == {"reports/metrics.json"}, "figures to compare, and nothing else"
    readable = in_workspace(workspace, "dvc", "metrics", "show")
    keys, values = readable.stdout.splitlines()
    assert {"ap", "matched", "fp16", "verdict"} <= set(keys.split()) and max(len(keys), len(values)) <= 120


@pytest.mark.slow
def test_what_must_be_verified_fails_the_run_where_nobody_did(
    after_chain: Path,
) -> None:
    workspace = after_chain
    done = pipeline(workspace, "verify.require=[engine,batch,trace]")
    assert report(workspace, "verify")["verdict"] == "passed" and report(workspace, "engine")["status"] != "refused"
    assert done.returncode == 1
    (said,) = (reason for reason in RunRecord.read(workspace).failures if "verify.require" in reason)
    assert "verify.require" in done.stdout
    expect(said, None, "engine")
    assert not re.search(r"\b(batch|trace)\b", said)


@pytest.mark.slow
def test_dvc_exp_run_composes_the_same_configuration(after_chain: Path) -> None:
    workspace = after_chain
    done = in_workspace(workspace, *EXPERIMENT.split())
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "trace" not in ran(done) and report(workspace, "fp16")["status"] == "skipped"


@pytest.mark.slow
def test_overflow_fails_without_pins_at_a_named_place_and_passes_with_our_defaults(
    after_chain: Path,
) -> None:
    workspace = after_chain
    naive = in_workspace(workspace, *OVERFLOW.split())
    verdict = json.loads((workspace / "artifacts/verify/verdict.json").read_text())
    assert naive.returncode == 1 and verdict["verdict"] == "failed"
    assert verdict["place"], "the run says where"
    assert verdict["place"]["selectors"] in naive.stdout, "to paste"
    assert "failed to reproduce" not in naive.stdout + naive.stderr
    assert report(workspace, "engine")["status"] == "refused"
    assert query(workspace, "select status from runs order by start_time desc limit 1") == [("FAILED",)]

    pinned = in_workspace(workspace, *OVERFLOW.split(), *shlex.split(verdict["place"]["selectors"]))
    assert pinned.returncode == 0 and report(workspace, "verify")["verdict"] == "passed", pinned.stdout

    ours = in_workspace(workspace, *NO_OVERFLOW.split(), "--verbose")
    verify = report(workspace, "verify")
    assert ours.returncode == 0, ours.stderr
    assert not {"trace", "slim", "calibrate"} & set(ran(ours))
    assert abs(verify["ap50_95"] - verify["ap50_95_fp32"]) <= 0.005 and verify["nan"] == 0 and verify["inf"] == 0


def test_weights_of_another_architecture_name_the_tensors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights = ROOT / "examples/digits/weights/rtdetrv2.safetensors"
    with pytest.raises(SystemExit) as ended:
        run_stages(tmp_path, "decoder=dfine", f"model.checkpoint={weights}", stages=("inputs", "trace"))
    assert ended.value.code == 1
    said = capsys.readouterr().err
    assert re.search(r"trace: .*rtdetrv2\.safetensors", said) and "decoder" in said


def test_corrupt_weights_are_refused_and_the_last_good_files_come_back(after_chain: Path) -> None:
    workspace = after_chain
    good = (workspace / "artifacts/trace/model.onnx").read_bytes()
    whole = (workspace / "examples/digits/weights/dfine.safetensors").read_bytes()
    (workspace / "examples/digits/weights/dfine.safetensors").unlink()  # a link to that of all workspaces
    (workspace / "examples/digits/weights/dfine.safetensors").write_bytes(whole[: len(whole) // 2])
    done = in_workspace(workspace, *AGAIN.split())
    assert done.returncode == 255, "DVC's own, of a stage that failed"
    expect(next(line for line in done.stderr.splitlines() if line.startswith("trace: ")), "file-unreadable")
    assert not (workspace / "artifacts/trace").exists()
    assert in_workspace(workspace, "dvc", "checkout").returncode == 0
    assert (workspace / "artifacts/trace/model.onnx").read_bytes() == good


def test_an_edit_of_conf_is_not_ignored(after_chain: Path) -> None:
    file = after_chain / "conf/precision/fp16.yaml"
    file.write_text(file.read_text() + "# edited\n")
    done = in_workspace(after_chain, *AGAIN.split())
    assert done.returncode == 255 and ran(done) == ["inputs"]
    said = next(line for line in done.stderr.splitlines() if line.startswith("inputs: "))
    expect(said, "stale-configuration", "conf/precision/fp16.yaml", "python -m pipeline")
    assert report(after_chain, "error")["exit_code"] == 2
    again = pipeline(after_chain)
    assert again.returncode == 0 and set(ran(again)) == ALWAYS_CHANGED, "a comment changes nothing else"


def _group_exists(leader: int) -> bool:
    """Whether a process of the group is left, also one that nobody has waited for yet."""
    try:
        os.killpg(leader, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("how", first_of([signal.SIGINT, signal.SIGKILL]))
def test_a_run_that_is_stopped_is_recovered_by_the_next(after_chain: Path, how: signal.Signals) -> None:
    workspace = after_chain
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
    until(partial.exists, "trace has begun", lambda: process.poll() is None)
    subprocess.run(["kill", f"-{int(how)}", "--", f"-{process.pid}"], check=True)
    _, said = process.communicate(timeout=HANG_S)
    assert process.returncode == (130 if how is signal.SIGINT else -9)
    until(lambda: not _group_exists(process.pid), "no process of the run is left")  # DVC's locks name processes
    if how is signal.SIGINT:
        assert re.search(r"^trace: stopped\b", said, re.MULTILINE)
        assert (workspace / "artifacts/trace/model.onnx").exists(), "the last good files are back in place"
    again = pipeline(workspace)
    assert again.returncode == 0, again.stderr
    assert not list(workspace.glob("artifacts/*.partial"))


@pytest.mark.slow
def test_two_runs_at_once_take_turns(after_chain: Path) -> None:
    workspace = after_chain
    commands = [[sys.executable, "-m", "pipeline", f"decoder={name}"] for name in ("dfine", "rtdetrv2")]
    both = [
        subprocess.Popen(command, cwd=workspace, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for command in commands
    ]
    outputs = [process.communicate(timeout=HANG_S) for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    waited = [
        line
        for _, errors in outputs
        for line in errors.splitlines()
        if line.startswith("pipeline: ") and "waits-for-another" in codes_in(line)
    ]
    assert len(waited) == 1, "for the workspace"
    assert in_workspace(workspace, "dvc", "status").returncode == 0


@pytest.mark.slow
def test_a_crash_is_tracked_drawn_and_summed_up(after_chain: Path) -> None:
    workspace = after_chain
    code = workspace / "stages/slim.py"
    code.write_text(code.read_text().replace("def run(stage: Stage)", "def run(stage: Stage, unexpected)"))
    done = pipeline(workspace)
    assert done.returncode == 1 and re.search(r"^failed\b.*\bslim$", done.stdout, re.MULTILINE)
    assert query(workspace, "select status from runs order by start_time desc limit 1") == [("FAILED",)]
    page = (workspace / "reports/report.html").read_text()
    assert re.search(r'<section class="card verdict failed"[^>]*>\s*<strong>[^<]*</strong>\s*<p>[^<]*\bslim\b', page)
    assert (workspace / "artifacts/slim/model.onnx").exists(), "the last good files are back in place"


def test_a_typo_in_a_block_list_is_said(after_chain: Path) -> None:
    run_stages(after_chain, "precision.node_block_list=[no_such_node]", stages=("fp16",))
    assert report(after_chain, "fp16")["unmatched_selectors"]
    (warning,) = report(after_chain, "fp16")["warnings"]
    expect(warning, None, "no_such_node")
    done = in_workspace(after_chain, "python", "-m", "pipeline.finish")
    assert warning in " ".join(done.stdout.split()), "the table says so, over as many lines as it takes"
