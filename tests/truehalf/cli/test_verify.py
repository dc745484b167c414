"""The command line of the comparison: flags become keywords, the verdict becomes the exit code."""

from __future__ import annotations

import html
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
from truehalf.cli.app import run as truehalf
from truehalf.config.verification import Evaluation, GatesConfig, VerifyConfig

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


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")


def shell(files: dict[str, str], candidate: str, *more: str) -> int:
    argv = [files["fp32"], files[candidate], "--samples", files["samples"], "--locate", "never", *more]
    return truehalf(["verify", *argv])


def test_a_pass_is_0_and_a_table(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert shell(files, "good") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("passed: ")
    expect(lines[0], None, files["good"], files["fp32"])
    assert any("'y'" in line and "0.00%" in line for line in lines)
    assert shell(files, "good", "--verbose") == 0
    lines = capsys.readouterr().out.splitlines()
    assert ["y", "0", "-", "0", "0", "0", "passed"] in [line.split() for line in lines]


def test_a_failure_is_1_and_says_why(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert shell(files, "bad") == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("failed: ")
    (why,) = [line for line in lines if "'y'" in line]
    expect(why, None, "FP16 moves output")
    assert any(line.endswith(": samples") for line in lines), "the sample that differs most"


@pytest.mark.parametrize("factor", [3e3, -3e3])
@pytest.mark.parametrize("name", ["/neck/Mul", "it's", "a b"])
def test_a_failure_is_repaired_by_the_flags_that_it_prints(
    factor: float, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "g (float[4,3] x) => (float[4,3] y) { i = MatMul (x, w) a = Mul (i, c) b = Mul (a, c) d = Div (b, c) "
    text += "e = Div (d, c) y = MatMul (e, w) }"
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(factor), "c"))
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.eye(3, dtype=np.float32), "w"))
    for index, node in enumerate(proto.graph.node):
        node.name = f"{name}_{index}"
    model, half, samples = (str(tmp_path / each) for each in ("m.onnx", "h.onnx", "x.npz"))
    onnx.save(proto, model)
    np.savez(samples, x=X)
    assert truehalf(["convert", model, "-o", half, "--no-check"]) == 3
    capsys.readouterr()
    page, result = tmp_path / "page.html", str(tmp_path / "result.json")
    assert truehalf(["verify", model, half, "--samples", samples, "--json", result]) == 1
    (pins,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  --node-block-list ")]
    assert truehalf(["report", result, "-o", str(page)]) == 0
    assert pins.strip() in html.unescape(page.read_text()) and "<h1>h.onnx</h1>" in page.read_text()
    assert truehalf(["convert", model, "-o", half, "--no-check", *shlex.split(pins)]) == 3
    assert truehalf(["verify", model, half, "--samples", samples]) == 0


def test_not_verified_is_3(files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = {"outputs": [{"name": "y", "kind": "classes"}], "trained": False}
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    assert shell(files, "good", "--spec", str(tmp_path / "spec.json")) == 3
    text = capsys.readouterr().out
    assert text.startswith("not verified: ")
    expect(text, None, "4 of 4 best classes", "0 others")


def test_bad_input_is_2_and_on_stderr(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert shell(files, "other") == 2
    done = capsys.readouterr()
    assert done.out == "" and done.err.startswith("truehalf verify: ")
    expect(done.err, "not-comparable", "'y'", "'z'")


def test_the_report_is_written_whatever_the_verdict(files: dict[str, str], tmp_path: Path) -> None:
    for candidate, code in (("good", 0), ("bad", 1)):
        assert shell(files, candidate, "--json", str(tmp_path / "deep" / "report.json")) == code
        content = json.loads((tmp_path / "deep" / "report.json").read_text())
        assert content["passed"] is (code == 0) and content["outputs"]["y"]["elements"] == 12


def test_a_report_that_cannot_be_written_is_found_before_the_work(
    files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def compare(*_: object, **__: object) -> None:
        raise AssertionError("the work began")

    monkeypatch.setattr("truehalf.verification.chain.compare.compare", compare)
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
    expect(capsys.readouterr().err, "would-overwrite", "--json", files["good"], "fp16.onnx")
    assert Path(files["good"]).read_bytes() == before
    os.mkfifo(tmp_path / "pipe")
    assert shell(files, "good", "--json", str(tmp_path / "pipe")) == 2
    expect(capsys.readouterr().err, "file-unwritable", "--json", tmp_path / "pipe")


@pytest.mark.parametrize(("fault", "code"), [(KeyboardInterrupt(), 130), (RuntimeError("a fault of ours"), 70)])
def test_what_stops_it_is_no_failure_of_the_candidate(
    files: dict[str, str], monkeypatch: pytest.MonkeyPatch, fault: BaseException, code: int
) -> None:
    def compare(*_: object, **__: object) -> None:
        raise fault

    monkeypatch.setattr("truehalf.verification.chain.compare.compare", compare)
    assert shell(files, "good") == code


def test_a_reader_that_goes_away_is_no_fault(files: dict[str, str]) -> None:
    line = [sys.executable, "-m", "truehalf", "verify", files["fp32"], files["good"], "--samples", files["samples"]]
    done = subprocess.run(f"{shlex.join(line)} | true", shell=True, capture_output=True, text=True, cwd=ROOT)
    assert done.stderr == ""


def test_a_disk_that_fills_up_is_said(
    files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "report.json")

    monkeypatch.setattr("truehalf.cli.form.write_json", full)
    assert shell(files, "good", "--json", str(tmp_path / "report.json")) == 2
    expect(capsys.readouterr().err, "file-unwritable", "No space left on device", "report.json")


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], {}),
        (
            ["--tolerance", "0.1", "--batch", "4"],
            {"options": VerifyConfig(gates=GatesConfig(tensor_rms_max=0.1), batch=4)},
        ),
        (
            ["--score-threshold", "0.3", "--iou-threshold", "0.8"],
            {"options": VerifyConfig(score_threshold=0.3, iou_threshold=0.8)},
        ),
        (["--locate", "always"], {"locate": "always"}),
        (["--locate", "when-off"], {}),
        (
            ["--evaluation", "cuda", "--spec", "s.yaml"],
            {"options": VerifyConfig(evaluation=Evaluation.cuda), "spec": "s.yaml"},
        ),
        (
            ["--size", "4x6", "--mean", "1,2,3", "--range", "0..255", "--layout", "NHWC"],
            {"preprocessing": {"size": [4, 6], "mean": [1.0, 2.0, 3.0], "range": [0, 255], "layout": "NHWC"}},
        ),
        (["--preprocessing", "p.yaml"], {"preprocessing": Path("p.yaml")}),
    ],
)
def test_flags_arrive(flags: list[str], expected: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, object] = {}

    def compare(*_: object, **options: object) -> None:
        seen.update(options)
        raise KeyboardInterrupt

    monkeypatch.setattr("truehalf.verification.chain.compare.compare", compare)
    assert truehalf(["verify", "a.onnx", "b.onnx", "--samples", "x", *flags]) == 130
    usual = {"locate": True, "spec": None, "preprocessing": None, "options": VerifyConfig()}
    assert seen == usual | expected


@pytest.mark.parametrize(
    ("flags", "code", "facts"),
    [
        (["--mean", "1,2"], "bad-syntax", ["--mean", "'1,2'"]),
        (["--size", "640"], "bad-syntax", ["--size", "640x640"]),
        (["--size", "4x4", "--preprocessing", "p.yaml"], "in-conflict", ["--preprocessing", "--size"]),
    ],
)
def test_bad_flags_of_images(flags: list[str], code: str, facts: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert truehalf(["verify", "a.onnx", "b.onnx", "--samples", "x", *flags]) == 2
    expect(capsys.readouterr().err, code, *facts)


@pytest.mark.parametrize("argv", [["a.onnx", "b.onnx"], ["a.onnx", "b.onnx", "--samples", "x", "--batch", "two"]])
def test_wrong_flags_are_bad_input(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert truehalf(["verify", *argv]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    expect(line, None, "truehalf verify --help")


def test_two_files_from_any_folder(tmp_path: Path, files: dict[str, str]) -> None:
    command = [sys.executable, "-m", "truehalf", "verify", "fp32.onnx", "bad.onnx", "--samples", "samples.npz"]
    done = subprocess.run([*command, "--locate", "never"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout.startswith("failed: bad.onnx ")
