"""What is said of batches and shapes: what the candidate ran with, and the axes that it lost."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from truehalf.codes import codes_in
from truehalf.io_spec.in_file import SPEC_KEY
from truehalf.verification.chain.compare import compare
from truehalf.verification.report import Report

CLASSES = '{"inputs": [{"name": "x"}], "outputs": [{"name": "y", "kind": "classes", "activation": "identity"}]}'


def file(path: Path, x: str, y: str, spec: str = "") -> Path:
    text = f'<ir_version: 8, opset_import: ["" : 17]> g (float[{x}] x) => (float[{y}] y) {{ y = Sigmoid(x) }}'
    proto = onnx.parser.parse_model(text)
    if spec:
        onnx.helper.set_model_props(proto, {SPEC_KEY: spec})
    onnx.save(proto, path)
    return path


def compared(folder: Path, sides: tuple[str, str], shape: list[int], spec: str = "", outputs: str = "") -> Report:
    a, b = (file(folder / f"{i}.onnx", side, side, spec) for i, side in enumerate(sides))
    if outputs:
        b = file(folder / "1.onnx", sides[1], outputs, spec)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    return compare(a, b, {"x": x}, locate=False)


def lost(report: Report) -> list[str]:
    return [each.reason for each in report.findings if "axis-fixed" in codes_in(each.reason)]


@pytest.mark.parametrize(
    ("sides", "shape", "outputs", "axis"),
    [
        (("N,4", "2,4"), [2, 4], "", "axis 0 of input"),
        (("N,4,H", "N,4,8"), [2, 4, 8], "", "axis 2 of input"),
        (("1,L", "1,5"), [1, 5], "", "axis 1 of input"),
        (("N,3,H,W", "N,3,H,6"), [1, 3, 5, 6], "", "axis 3 of input"),
        (("N,4", "N,4"), [2, 4], "2,4", "axis 0 of output"),
    ],
)
def test_an_axis_that_a_candidate_fixes_is_said(
    sides: tuple[str, str], shape: list[int], outputs: str, axis: str, tmp_path: Path
) -> None:
    report = compared(tmp_path, sides, shape, outputs=outputs)
    assert [each for each in lost(report) if axis in each] and set(lost(report)) <= set(report.not_verified)


@pytest.mark.parametrize("sides", [("N,4", "N,4"), ("2,4", "2,4"), ("2,4", "N,4"), ("N,4", "M,4")])
def test_what_is_free_in_both_or_fixed_in_both_is_not_lost(sides: tuple[str, str], tmp_path: Path) -> None:
    assert lost(compared(tmp_path, sides, [2, 4])) == []


@pytest.mark.parametrize(("batch", "samples"), [("N", 3), ("2", 2), ("4", 3), ("5", 2), ("8", 1)])
def test_the_batch_that_the_candidate_ran_with_is_named(batch: str, samples: int, tmp_path: Path) -> None:
    report = compared(tmp_path, ("N,4", f"{batch},4"), [samples, 4], CLASSES)
    (said,) = [each for each in report.not_verified if "batch sizes" in each]
    assert re.findall(r"\d+", said) == [str(samples if batch == "N" else batch)]


@pytest.mark.parametrize(
    ("sides", "shape", "named"), [("N,4", [3, 4], "[3, 4]"), ("L", [7], "[7]"), ("N,H,W", [1, 2, 5], "[1, 2, 5]")]
)
def test_the_shapes_that_ran_are_named(sides: str, shape: list[int], named: str, tmp_path: Path) -> None:
    said = compared(tmp_path, (sides, sides), shape).not_verified
    assert [each for each in said if "input 'x'" in each and named in each]
    assert not [each for each in compared(tmp_path, (str(shape)[1:-1],) * 2, shape).not_verified if "shapes" in each]
