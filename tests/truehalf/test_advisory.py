"""An advisory part that raises ends no export, conversion or verification: the report names it as missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import onnx
import onnx.parser
import pytest
import torch

from tests.messages import expect, raises
from tests.truehalf.verification.small_detector import FP16, verified, write
from truehalf.api import compare, convert, export
from truehalf.cli.app import run as truehalf
from truehalf.errors import StageError, attempted

SAMPLES = {"x": np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)}


def broken(*_: Any, **__: Any) -> NoReturn:
    raise IndexError("pop from empty list\nand more")


def written(path: Path, body: str) -> Path:
    graph = f"g (float[n,8] x) => (float[n,8] y) <float k = {{1000.0}}> {{ {body} }}"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {graph}'), path)
    return path


@pytest.fixture
def sums(tmp_path: Path) -> Path:
    """A model whose conversion in full is beyond the tolerance."""
    return written(tmp_path / "m.onnx", "a = Add(x, k)  y = Sub(a, k)")


def converted(source: Path) -> Any:
    from truehalf import Precision

    options: Any = {"rules": "autocast", "data_max": None, "placement": "eager"}
    return convert(source, source.with_name("o.onnx"), samples=SAMPLES, precision=Precision(**options)).report.check


def test_the_line_names_part_error_and_code() -> None:
    missing: list[str] = []
    assert attempted("the page", missing.append, broken) is None
    assert missing == ["the page: IndexError: pop from empty list [part-missing]"]
    assert attempted("the page", missing.append, lambda: 3) == 3 and len(missing) == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, SystemExit])
def test_what_ends_the_process_is_no_missing_part(error: type[BaseException]) -> None:
    def stopped() -> NoReturn:
        raise error

    with pytest.raises(error):
        attempted("the page", [].append, stopped)


def test_lint_that_raises_ends_no_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("truehalf.patterns.report.lint", broken)
    report = export(torch.nn.ReLU(), tmp_path / "m.onnx", samples=[SAMPLES]).report
    assert (tmp_path / "m.onnx").is_file() and report.parity["status"] == "verified"
    (note,) = [each for each in report.notes if "lint" in each]
    expect(note, "part-missing", "IndexError: pop from empty list")


def test_lint_that_raises_passes_no_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    from truehalf.config.schema import FailOn, LintConfig
    from truehalf.ir.model_forms import as_ir
    from truehalf.patterns.report import lint_of_trace

    monkeypatch.setattr("truehalf.patterns.report.lint", broken)
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[n] x) => (float[n] y) { y = Neg(x) }'
    )
    with raises("lint-fails", "IndexError"):
        lint_of_trace(as_ir(proto), LintConfig(fail_on=FailOn.error), (), ())


def test_notes_that_raise_end_no_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("truehalf.exporting.trace.empty_tensors", broken)
    report = export(torch.nn.ReLU(), tmp_path / "m.onnx", samples=[SAMPLES]).report
    assert any("part-missing" in note for note in report.notes) and report.parity["status"] == "verified"


def test_a_place_that_raises_ends_no_comparison(sums: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = written(sums.with_name("other.onnx"), "a = Cast <to = 10> (x)  b = Cast <to = 1> (a)  y = Add(b, k)")
    monkeypatch.setattr("truehalf.verification.chain.compare.place_of", broken)
    report = compare(sums, other, SAMPLES)
    assert report.verdict == "failed" and report.place is None
    (line,) = [each for each in report.not_verified if "not-searched" in each]
    expect(line, "not-searched", "IndexError: pop from empty list")


def test_pins_that_raise_end_no_conversion(sums: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("truehalf.verification.chain.quick_check._with_pins", broken)
    check = converted(sums)
    assert check.state == "failed" and check.node_block_list == ()
    expect(check.remedy, "not-searched", "IndexError: pop from empty list")


@pytest.mark.parametrize("error", [IndexError("pop"), StageError("not-finite", "pop")])
def test_a_check_that_raises_ends_no_conversion(sums: Path, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any, **__: Any) -> NoReturn:
        raise error

    monkeypatch.setattr("truehalf.verification.chain.quick_check.compare", failing)
    check = converted(sums)
    assert check.state == "not verified" and "pop" in check.reason and sums.with_name("o.onnx").is_file()


@pytest.mark.parametrize("part", ["draw", "outline"])
def test_what_is_drawn_takes_no_verdict_away(part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"truehalf.verification.chain.chain.{part}", broken)
    report = verified(tmp_path, write(tmp_path / "final" / "model.onnx", FP16))
    assert report["verdict"] == "passed"
    (line,) = [each for each in report["not_verified"] if "part-missing" in each]
    expect(line, "part-missing", "IndexError: pop from empty list")


def test_lint_that_raises_ends_no_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("truehalf.engines.build.lint", broken)
    source = written(tmp_path / "m.onnx", "y = Mul(x, k)")
    truehalf(["engine", str(source), "--min-shape", "x:1x8", "--max-shape", "x:2x8", "--quiet"])
    report = json.loads((tmp_path / "m_engine" / "engine.json").read_text())
    assert any("part-missing" in line for line in report["not_verified"]), report
