"""python -m pipeline: help, refusals and exit codes, before any stage runs."""

import re
import sqlite3
from pathlib import Path

import pytest

from pipeline.__main__ import main
from tests.conftest import in_workspace
from tests.messages import expect
from tests.pipeline.small_project import line_with
from truehalf.codes import codes_in


def pipeline(workspace: Path, *arguments: str):  # type: ignore[no-untyped-def]
    return in_workspace(workspace, "python", "-m", "pipeline", *arguments)


@pytest.mark.parametrize("asked", ["--help", "-h"])
def test_help_is_a_page(asked: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["pipeline", asked])
    with pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code
    expect(capsys.readouterr().out, None, "data.folder=images", "precision: fp16, fp32", "--cfg job", "--verbose")


@pytest.mark.parametrize(
    "arguments",
    [
        ["precision=auto"],
        ["precision=bf16"],
        ["decoder=dfine", "precision=int8"],
        ["precision=fp8"],
        ["-m", "precision=fp32,bf16"],
        ["--cfg", "job", "precision=auto"],
    ],
)
def test_a_precision_that_there_is_not_ends_at_once(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["pipeline", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    asked = next(name for name in ("auto", "bf16", "int8", "fp8") if name in " ".join(arguments))
    expect(line, "unknown-choice", f"precision/{asked}", "fp16", "fp32")


def test_files_of_another_folder_are_composed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model/teammate.yaml").write_text("defaults: [onnx, _self_]\nname: teammate\n")
    for told in (["--config-dir", str(tmp_path)], [f"hydra.searchpath=[file://{tmp_path}]"]):
        monkeypatch.setattr("sys.argv", ["pipeline", "--cfg", "job", *told, "model=teammate"])
        with pytest.raises(SystemExit) as stop:
            main()
        assert not stop.value.code and "name: teammate" in capsys.readouterr().out


def test_cfg_job_prints_the_configuration(workspace: Path) -> None:
    done = pipeline(workspace, "--cfg", "job", "precision=fp32")
    assert done.returncode == 0 and "dtype: fp32" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["precision=fp8"], {"precision/fp8": "unknown-choice"}),
        (["precison=fp16"], {"precison": "unknown-key"}),
        (["precision.data_mx=3"], {"precision.data_mx": "unknown-key"}),
        (["model=torch", "model.options.factry=a:b"], {"factry": "unknown-key"}),
        (["precision", "fp16"], {"precision": "bad-syntax"}),
        (["data.folder=a=b"], {"data.folder=a=b": "bad-syntax"}),
        (["workspace=isolated"], {"workspace": "unknown-key"}),
        (["search=frontier"], {"search": "unknown-key"}),
        (["verify.require=[detectons]"], {"did you mean detections?": "unknown-choice"}),
        (
            ["precision.data_max=abc", "trace.opset=99"],
            {"precision.data_max": "wrong-type", "trace.opset": "out-of-range"},
        ),
        (["precision=fp16", "simplify=false"], {"simplify=true": "in-conflict"}),
    ],
)
def test_wrong_options_are_refused_and_change_nothing(
    workspace: Path, arguments: list[str], expected: dict[str, str]
) -> None:
    before = (workspace / "params.yaml").read_bytes()
    done = pipeline(workspace, *arguments)
    assert done.returncode == 2
    for part, code in expected.items():
        expect(line_with(code, done.stderr), code, part)
    assert "Traceback" not in done.stderr
    assert (workspace / "params.yaml").read_bytes() == before
    assert not (workspace / "artifacts").exists() and not (workspace / "dvc.lock").exists()


NOT_READ = {
    "no image": (["data=images", "data.folder=texts"], "file-missing"),
    "no labels": (["data=coco", "data.folder=texts", "data.annotations=texts/a.json"], "file-unreadable"),
    "no arrays": (["data=npz", "data.file=texts/a.npz"], "file-unreadable"),
}


@pytest.mark.parametrize("what", NOT_READ)
def test_a_run_that_cannot_begin_is_refused_and_is_no_run(workspace: Path, what: str) -> None:
    arguments, code = NOT_READ[what]
    (workspace / "texts").mkdir()
    for name in ("a.json", "a.npz"):
        (workspace / "texts" / name).write_text("{}")
    before = (workspace / "params.yaml").read_bytes()
    done = pipeline(workspace, *arguments)
    assert done.returncode == 2
    expect(line_with(code, done.stderr), code, "texts", arguments[-1].split("=")[0])
    assert (workspace / "params.yaml").read_bytes() == before
    assert not (workspace / "mlflow.db").exists() and not (workspace / "reports/report.html").exists()


@pytest.mark.slow
def test_broken_weights_are_named_and_the_run_is_tracked_as_failed(workspace: Path) -> None:
    (workspace / "broken.safetensors").write_bytes(b"no weights")
    done = pipeline(workspace, "model.checkpoint=broken.safetensors")
    assert done.returncode == 1
    with sqlite3.connect(workspace / "mlflow.db") as database:
        assert database.execute("select status from runs").fetchall() == [("FAILED",)]
    assert re.search(r"^failed\b.*\btrace$", done.stdout, re.MULTILINE)
    for said in (done.stdout, done.stderr):  # the verdict, and the stage itself
        expect(line_with("file-unreadable", said), None, "broken.safetensors")


def test_what_is_not_there_is_named_with_all_else_before_anything_runs(workspace: Path) -> None:
    told = ("model.checkpoint=none.pt", "data=images", "data.folder=pictures", "verify.batch=0")
    done = pipeline(workspace, *told)
    assert done.returncode == 2
    errors = [line.removeprefix("  - ") for line in done.stderr.splitlines() if line.startswith("  - ")]
    assert [(error.split(":")[0], *codes_in(error)) for error in errors] == [
        ("verify.batch", "out-of-range"),
        ("model.checkpoint", "file-missing"),
        ("data.folder", "file-missing"),
    ]
    assert not (workspace / "artifacts").exists() and not (workspace / "dvc.lock").exists()
    assert pipeline(workspace, "--cfg", "job", *told).returncode == 0


def test_a_sweep_goes_on_after_a_bad_job_and_says_which(workspace: Path) -> None:
    done = pipeline(workspace, "-m", "trace.opset=98,99")
    assert done.returncode == 2
    errors = [line for line in done.stderr.splitlines() if codes_in(line) == ["out-of-range"]]
    for error, opset in zip(errors, (98, 99), strict=True):
        expect(error, None, "trace.opset", opset)
    assert re.findall(r"\d+", line_with("jobs-failed", done.stderr)) == ["2", "2", "0", "1"], "2 of 2: #0, #1"
