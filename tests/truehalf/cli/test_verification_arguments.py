"""The command line of the comparison: flags become keywords, the verdict becomes the exit code."""

from __future__ import annotations

import inspect
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from tests.conftest import ROOT
from tests.messages import expect
from truehalf.cli import verification_arguments as module
from truehalf.cli.verification_arguments import BAD_INPUT, EXIT_CODES, arguments, compare_from_shell
from truehalf.verification.compare.compare import compare as door

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """A reference, a file that equals it, one that does not, one of another interface, and samples."""
    texts = {
        "fp32": "(float[N,3] x) => (float[N,3] y) { y = Relu (x) }",
        "good": "(float[N,3] x) => (float[N,3] y) { z = Neg (x) w = Neg (z) y = Relu (w) }",
        "bad": "(float[N,3] x) => (float[N,3] y) { y = Neg (x) }",
        "other": "(float[N,3] x) => (float[N,3] z) { z = Relu (x) }",
    }
    for name, text in texts.items():
        proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g {text}')
        onnx.save(proto, tmp_path / f"{name}.onnx")
    np.savez(tmp_path / "samples.npz", x=X)
    return {path.stem: str(path) for path in tmp_path.iterdir()}


def shell(files: dict[str, str], candidate: str, *more: str) -> int:
    argv = [files["fp32"], files[candidate], "--inputs", files["samples"], "--locate", "never", *more]
    return compare_from_shell(argv)


def test_a_pass_is_0_and_a_table(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert shell(files, "good") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("passed: ")
    expect(lines[0], None, files["good"], files["fp32"])
    assert lines[3].split()[:5] == ["output", "max", "|d|", "p99", "|d|"]
    assert lines[4].split() == ["y", "0", "0", "0.01", "0", "1", "inf", "0", "0", "passed"]


def test_a_failure_is_1_and_says_why(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert shell(files, "bad") == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("failed: ")
    (why,) = [line for line in lines if "'y'" in line]
    expect(why, None, "max |d|", 2, 0.01)
    assert any(line.endswith(": samples") for line in lines), "the sample that differs most"


def test_not_verified_is_3(files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = {"outputs": [{"name": "y", "kind": "classes"}], "trained": False}
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    assert shell(files, "good", "--spec", str(tmp_path / "spec.json")) == 3
    text = capsys.readouterr().out
    assert text.startswith("not verified: ")
    expect(text, None, "top-1 agreement 1", "top-5 -", "KL mean 0", "max 0")


def test_bad_input_is_2_and_on_stderr(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert shell(files, "other") == 2
    done = capsys.readouterr()
    assert done.out == "" and done.err.startswith("verify: ")
    expect(done.err, "not-comparable", "'y'", "'z'")


def test_the_report_is_written_whatever_the_verdict(files: dict[str, str], tmp_path: Path) -> None:
    for candidate, code in (("good", 0), ("bad", 1)):
        assert shell(files, candidate, "--json", str(tmp_path / "deep" / "report.json")) == code
        content = json.loads((tmp_path / "deep" / "report.json").read_text())
        assert content["passed"] is (code == 0) and content["outputs"]["y"]["elements"] == 12


def test_a_report_that_cannot_be_written_is_found_before_the_work(
    files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def compare(**_: object) -> None:
        raise AssertionError("the work began")

    monkeypatch.setattr("truehalf.cli.verification_arguments.compare", compare)
    (tmp_path / "file").write_text("x")
    assert shell(files, "good", "--json", str(tmp_path / "file" / "report.json")) == 2
    expect(capsys.readouterr().err, "file-unwritable", tmp_path / "file" / "report.json")
    assert shell(files, "good", "--json", str(tmp_path)) == 2
    expect(capsys.readouterr().err, "file-unwritable", tmp_path)


def test_a_report_never_replaces_what_is_compared(
    files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = Path(files["good"]).read_bytes()
    assert shell(files, "good", "--json", files["good"]) == 2
    expect(capsys.readouterr().err, "would-overwrite", "--json", files["good"], "candidate")
    assert Path(files["good"]).read_bytes() == before
    os.mkfifo(tmp_path / "pipe")
    assert shell(files, "good", "--json", str(tmp_path / "pipe")) == 2
    expect(capsys.readouterr().err, "file-unwritable", "--json", tmp_path / "pipe")


@pytest.mark.parametrize(("fault", "code"), [(KeyboardInterrupt(), 130), (RuntimeError("a fault of ours"), 2)])
def test_what_stops_it_is_no_failure_of_the_candidate(
    files: dict[str, str], monkeypatch: pytest.MonkeyPatch, fault: BaseException, code: int
) -> None:
    def compare(**options: object) -> None:
        raise fault

    monkeypatch.setattr(module, "compare", compare)
    assert shell(files, "good") == code


def test_a_reader_that_goes_away_is_no_fault(files: dict[str, str]) -> None:
    line = [sys.executable, "-m", "stages.verify", files["fp32"], files["good"], "--inputs", files["samples"]]
    done = subprocess.run(f"{shlex.join(line)} | true", shell=True, capture_output=True, text=True, cwd=ROOT)
    assert done.stderr == ""


def test_a_disk_that_fills_up_is_said(
    files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "report.json")

    monkeypatch.setattr("truehalf.cli.verification_arguments.write_json", full)
    assert shell(files, "good", "--json", str(tmp_path / "report.json")) == 2
    expect(capsys.readouterr().err, "file-unwritable", "No space left on device", "report.json")


@pytest.mark.parametrize(
    ("flags", "options"),
    [
        ([], {}),
        (["--tolerance", "0.1", "--batch", "4"], {"tolerance": 0.1, "batch": 4}),
        (["--score-threshold", "0.3", "--iou-threshold", "0.8"], {"score_threshold": 0.3, "iou_threshold": 0.8}),
        (["--locate", "always"], {"locate": "always"}),
        (["--locate", "when-off", "--skip-corrupt"], {"locate": True, "skip_corrupt": True}),
        (["--evaluation", "cuda", "--spec", "s.yaml"], {"evaluation": "cuda", "spec": "s.yaml"}),
    ],
)
def test_flags_become_keywords(flags: list[str], options: dict[str, object]) -> None:
    found, json_path = arguments(["a.onnx", "b.onnx", "--inputs", "x", *flags])
    assert found == {"reference": "a.onnx", "candidate": "b.onnx", "inputs": "x"} | options and json_path is None


def test_every_keyword_is_a_flag(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    with pytest.raises(SystemExit) as ended:
        arguments(["--help"])
    text = capsys.readouterr().out
    assert ended.value.code == 0
    expect(text, None, *(f"{code} {verdict}" for verdict, code in EXIT_CODES.items()), BAD_INPUT)
    keywords = [name for name in inspect.signature(door).parameters if name not in ("reference", "candidate")]
    assert all(f"--{name.replace('_', '-')} " in text for name in keywords)


def test_wrong_flags_are_bad_input() -> None:
    for argv in (["a.onnx", "b.onnx"], ["a.onnx", "b.onnx", "--inputs", "x", "--batch", "two"]):
        with pytest.raises(SystemExit) as ended:
            arguments(argv)
        assert ended.value.code == 2
