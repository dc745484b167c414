"""python -m pipeline.diff: options, figures and nodes of two runs."""

import json
from pathlib import Path

import pytest

from pipeline.diff import main
from pipeline.run_record import Run
from pipeline.track import track
from tests.configurations import composed
from tests.messages import expect
from tests.pipeline.test_track import scratch_run

DECISIONS = {
    "null": [("a", "Conv", "fp16", "default"), ("b", "Softmax", "fp16", "default"), ("c", "Exp", "fp32", "range")],
    "128.0": [("a", "Conv", "fp16", "default"), ("b", "Softmax", "fp32", "range"), ("d", "Mul", "fp16", "default")],
}
CASTS = {"null": 512, "128.0": 128}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two runs of runs/ that decided, one in FP32, and one that crashed."""
    (tmp_path / "dvc.yaml").write_text("stages: {}\n")
    monkeypatch.chdir(tmp_path)
    for maximum, rows in DECISIONS.items():
        scratch_run(tmp_path, f"precision.data_max={maximum}")
        (tmp_path / "reports/fp16.json").write_text("{}")
        size = {"model": {"casts": CASTS[maximum], "size_mb": 1.0}}
        (tmp_path / "reports/slim.json").write_text(json.dumps({"model": {"casts": 0}}))
        (tmp_path / "reports/cast_cleanup.json").write_text(json.dumps(size))
        (tmp_path / "artifacts/fp16").mkdir(parents=True, exist_ok=True)
        decided = [dict(zip(("node", "op", "precision", "rule"), row, strict=True)) for row in rows]
        (tmp_path / "artifacts/fp16/decisions.json").write_text(json.dumps(decided))
        track(Run.read(tmp_path))
    (tmp_path / "artifacts/fp16/decisions.json").unlink()
    track(Run.read(scratch_run(tmp_path, "precision=fp32")))
    (tmp_path / "reports/error.json").write_text(json.dumps({"stage": "trace", "message": "no model"}))
    track(Run.read(scratch_run(tmp_path, "seed=9")))
    return tmp_path


def diff(monkeypatch: pytest.MonkeyPatch, *names: str) -> int:
    monkeypatch.setattr("sys.argv", ["pipeline.diff", *names])
    return main()


def name(*overrides: str) -> str:
    return Run(Path(), composed(*overrides)).slug


def test_two_runs_differ_in_options_figures_and_nodes(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert diff(monkeypatch, name(), name("precision.data_max=128.0")[:-2]) == 0
    said = capsys.readouterr().out
    expect(
        said, None, "precision.data_max: null -> 128", "casts added: 512 -> 128", "3 nodes", "b (Softmax)", "c (Exp)"
    )
    expect(said, None, "fp16 -> fp32: range", "fp32 -> absent: range", "absent -> fp16")
    assert "MB:" not in said and "a (Conv)" not in said


def test_a_run_in_fp32_has_all_nodes_in_fp32(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert diff(monkeypatch, name("precision=fp32"), name()) == 0
    said = capsys.readouterr().out
    expect(said, None, "precision.dtype: fp32 -> fp16", "2 nodes", "fp32 -> fp16")
    assert "data_max" not in said, "it has no effect in FP32"


@pytest.mark.parametrize(("names", "code"), [(("ltdetr", "x"), "unknown-choice"), (("x", "y"), "unknown-choice")])
def test_a_name_of_none_or_several_is_refused(
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    names: tuple[str, str],
    code: str,
) -> None:
    assert diff(monkeypatch, *names) == 2
    expect(capsys.readouterr().err, code, names[0], project / "runs")


def test_a_run_that_crashed_before_it_decided_is_said(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert diff(monkeypatch, name(), name("seed=9")) == 2
    expect(capsys.readouterr().err, "no-decisions", name("seed=9"), "no model")
