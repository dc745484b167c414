"""A stage's files appear when it has ended well, and not before."""

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stages.frame import Stage, run_stage
from tests.configurations import write_params
from tests.conftest import ROOT
from tests.messages import expect
from truehalf.errors import StageError


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_params(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def end_of(name: str, body) -> int:  # type: ignore[no-untyped-def]
    with pytest.raises(SystemExit) as ended:
        run_stage(name, body)
    assert isinstance(ended.value.code, int)
    return ended.value.code


def write_good(stage: Stage) -> dict[str, int]:
    (stage.out / "model.onnx").write_text("good")
    return {"nodes": 1}


def test_a_stage_that_ends_well_leaves_its_outs_and_its_report(scratch: Path) -> None:
    run_stage("slim", write_good)
    assert (scratch / "artifacts/slim/model.onnx").read_text() == "good"
    report = json.loads((scratch / "reports/slim.json").read_text())
    assert report["stage"] == "slim" and report["status"] == "done" and report["nodes"] == 1 and report["seconds"] >= 0


@pytest.mark.parametrize(
    ("stage", "code", "ends"),
    [
        ("inputs", "too-few-samples", 2),
        ("trace", "wrong-name", 2),
        ("trace", "outputs-differ", 1),
        ("fp16", "wrong-name", 1),
        *((stage, code, 2) for stage in ("trace", "verify") for code in ("package-missing", "download-fails")),
        ("engine", "download-fails", 2),
    ],
)
def test_a_run_that_has_not_begun_or_lacks_a_package_is_bad_input(
    scratch: Path, stage: str, code: str, ends: int
) -> None:
    def refuse(_: Stage) -> dict[str, int]:
        raise StageError(code, "no")

    assert end_of(stage, refuse) == ends
    assert json.loads((scratch / "reports/error.json").read_text())["exit_code"] == ends


@pytest.mark.parametrize(
    ("fault", "ends", "code"),
    [
        (StageError("no-match", "no"), 1, "no-match"),
        (KeyboardInterrupt(), 130, None),
        (OSError(errno.ENOSPC, "No space left on device"), 1, "file-unwritable"),
    ],
)
def test_a_stage_that_fails_leaves_the_last_good_outs(
    scratch: Path, fault: BaseException, ends: int, code: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    run_stage("slim", write_good)

    def fail(stage: Stage) -> dict[str, int]:
        (stage.out / "model.onnx").write_text("half")
        raise fault

    assert end_of("slim", fail) == ends
    assert (scratch / "artifacts/slim/model.onnx").read_text() == "good"
    assert not list(scratch.glob("artifacts/*.partial"))
    printed, written = capsys.readouterr().err, json.loads((scratch / "reports/error.json").read_text())
    assert printed == f"slim: {written['message']}\n" and written["stage"] == "slim"
    expect(printed, code)


def test_params_changed_while_a_stage_runs_is_an_error(scratch: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    def meddle(stage: Stage) -> dict[str, int]:
        write_params(scratch, "seed=7")
        return write_good(stage)

    assert end_of("slim", meddle) == 1
    expect(capsys.readouterr().err, "changed-meanwhile", "params.yaml")
    assert not (scratch / "artifacts/slim").exists()


def test_hand_edited_params_are_validated_by_the_stage(scratch: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    text = (scratch / "params.yaml").read_text()
    (scratch / "params.yaml").write_text(text.replace("opset: 17", "opset: 99\n  opsett: 17"))
    assert end_of("slim", write_good) == 2
    _, *errors = capsys.readouterr().err.splitlines()
    (opset,) = [error for error in errors if "trace.opset:" in error]
    expect(opset, "out-of-range", 17, 20, 99)
    (unknown,) = [error for error in errors if "trace.opsett:" in error]
    expect(unknown, "unknown-key", "opset")


def test_a_killed_stage_is_never_taken_for_a_whole_one(scratch: Path) -> None:
    run_stage("slim", write_good)
    code = (
        "import time; from stages.frame import run_stage\n"
        "def body(stage):\n"
        "    (stage.out / 'model.onnx').write_text('half'); print('started', flush=True); time.sleep(3600)\n"
        "run_stage('slim', body)"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "-c", code], cwd=scratch, env=environment, stdout=subprocess.PIPE)
    assert process.stdout and process.stdout.readline() == b"started\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert (scratch / "artifacts/slim/model.onnx").read_text() == "good"
    run_stage("slim", write_good)  # the leftover folder is in nobody's way
    assert not list(scratch.glob("artifacts/*.partial"))


@pytest.mark.parametrize("place", ["artifacts/slim"])
def test_a_stage_replaces_nothing_but_its_own_files(
    scratch: Path, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (scratch / place).parent.mkdir()
    os.mkfifo(scratch / place)
    before = (scratch / place).lstat()
    assert end_of("slim", write_good) == 1
    expect(capsys.readouterr().err, "file-unwritable", scratch / place)
    assert (scratch / place).lstat().st_ino == before.st_ino


def test_a_report_that_dvc_has_linked_from_its_cache_is_made_anew(scratch: Path) -> None:
    (scratch / "cached").write_text("of an earlier run")
    (scratch / "cached").chmod(0o444)
    (scratch / "reports").mkdir()
    (scratch / "reports/slim.json").symlink_to(scratch / "cached")
    run_stage("slim", write_good)
    assert json.loads((scratch / "reports/slim.json").read_text())["nodes"] == 1
    assert (scratch / "cached").read_text() == "of an earlier run"


@pytest.mark.parametrize("package", ["stages", "pipeline"])
def test_ctrl_c_among_imports_says_nothing_and_errors_do(package: str) -> None:
    def ended(error: str) -> subprocess.CompletedProcess[str]:
        code = f"import {package}\nraise {error}"
        return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)

    stopped, failed = ended("KeyboardInterrupt"), ended("ValueError(3)")
    assert (stopped.returncode, stopped.stderr) == (-signal.SIGINT, "")
    assert failed.returncode == 1 and failed.stderr.endswith("ValueError: 3\n")
