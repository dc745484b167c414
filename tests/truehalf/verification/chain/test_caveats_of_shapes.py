"""What is said of batches and shapes: what the candidate ran with, and the axes that it lost."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

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


def compared(folder: Path, sides: tuple[str, str], shape: list[int], spec: str = "") -> Report:
    a, b = (file(folder / f"{i}.onnx", side, side, spec) for i, side in enumerate(sides))
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    return compare(a, b, {"x": x}, locate=False)


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
