"""python -m pipeline: help, refusals and exit codes, before any stage runs."""

from pathlib import Path

import pytest

from tests.conftest import in_workspace


def pipeline(workspace: Path, *arguments: str):  # type: ignore[no-untyped-def]
    return in_workspace(workspace, "python", "-m", "pipeline", *arguments)


def test_help_lists_groups_and_keys(workspace: Path) -> None:
    done = pipeline(workspace, "--help")
    assert done.returncode == 0
    for part in (
        "precision: fp16, fp16_bold, fp16_cautious, fp32",
        "decoder: dfine, none, rtdetrv2",
        "op_block_list",
        "memory_pools_gb",
    ):
        assert part in done.stdout


def test_cfg_job_prints_the_configuration(workspace: Path) -> None:
    done = pipeline(workspace, "--cfg", "job", "precision=fp32")
    assert done.returncode == 0 and "dtype: fp32" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["precision=auto"], ["fp16", "fp32"]),
        (["precison=fp16"], ["precison"]),
        (["precision.data_mx=3"], ["data_mx"]),
        (["precision.data_max=abc", "trace.opset=99"], ["precision.data_max: expected a number", "trace.opset"]),
        (["precision=fp16", "simplify=false"], ["needs simplify=true"]),
    ],
)
def test_wrong_options_are_refused_and_change_nothing(
    workspace: Path, arguments: list[str], expected: list[str]
) -> None:
    before = (workspace / "params.yaml").read_bytes()
    done = pipeline(workspace, *arguments)
    assert done.returncode != 0
    for part in expected:
        assert part in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert (workspace / "params.yaml").read_bytes() == before
    assert not (workspace / "artifacts").exists() and not (workspace / "dvc.lock").exists()


def test_broken_weights_are_named_and_the_run_is_tracked_as_failed(workspace: Path) -> None:
    (workspace / "broken.safetensors").write_bytes(b"no weights")
    done = pipeline(workspace, "model.checkpoint=broken.safetensors")
    assert done.returncode == 1
    assert "expected a safetensors file" in done.stderr and "broken.safetensors" in done.stderr
    assert "logged as a failed run" in done.stdout
    assert "│ failed " in done.stdout and "failed: trace: weights: " in done.stdout


def test_what_is_not_there_is_named_with_all_else_before_anything_runs(workspace: Path) -> None:
    told = ("model.checkpoint=none.pt", "data=images", "data.folder=pictures", "verify.batch=0")
    done = pipeline(workspace, *told)
    assert done.returncode == 2 and "configuration: 3 errors" in done.stderr
    for part in ("verify.batch: expected 1", "model.checkpoint: no such file: ", "data.folder: no such folder: "):
        assert f"  - {part}" in done.stderr
    assert not (workspace / "artifacts").exists() and not (workspace / "dvc.lock").exists()
    assert pipeline(workspace, "--cfg", "job", *told).returncode == 0


def test_a_sweep_goes_on_after_a_bad_job_and_says_which(workspace: Path) -> None:
    done = pipeline(workspace, "-m", "trace.opset=98,99")
    assert done.returncode == 2
    assert "got 98" in done.stderr and "got 99" in done.stderr
    assert "2 of 2 jobs failed: #0, #1" in done.stderr
