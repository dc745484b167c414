"""A chain of tensors: what the scale of an output hides, and outputs that ignore their input."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
import torch

from tests.messages import expect
from tests.truehalf.verification.small_detector import OPTIONS
from truehalf.data.samples import Sample
from truehalf.io_spec.spec import IoSpec, OutputSpec
from truehalf.verification.chain import chain
from truehalf.verification.chain.compare import compare
from truehalf.verification.chain.reference import freeze
from truehalf.verification.chain.stage import Judge

SPEC = IoSpec.from_json(
    {
        "inputs": [{"name": "x", "shape": ["batch", 3]}],
        "outputs": [{"name": "y"}],
        "class_names": [],
        "trained": True,
    }
)
FILE = """
<ir_version: 10, opset_import: ["" : 17]>
mapped (float[batch,3] x) => (float[batch,6] y) { flat = MatMul (x, weights)  y = Add (flat, offset) }
"""
WEIGHTS = np.random.default_rng(0).uniform(0.2, 1, (3, 6)).astype(np.float32)
MADE = chain.Making(batch_sizes=(1, 4))
X = np.random.default_rng(1).uniform(0, 1, (12, 3)).astype(np.float32)


class Mapped(torch.nn.Module):
    def __init__(self, weights: np.ndarray, offset: float) -> None:
        super().__init__()
        self.weights, self.offset = torch.from_numpy(weights), offset

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
        return (x @ self.weights + self.offset,)


def write(path: Path, weights: np.ndarray, offset: float = 0.0) -> Path:
    model = onnx.parser.parse_model(FILE)
    constants = {"weights": weights, "offset": np.array(offset, np.float32)}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(each, name) for name, each in constants.items())
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    return path


def verified(folder: Path, r: np.ndarray, o: np.ndarray, offset: float = 0.0, rows: np.ndarray = X) -> dict[str, Any]:
    samples = [Sample(f"made/{number}", {"x": row}, None, None) for number, row in enumerate(rows)]
    fp32, final = write(folder / "fp32.onnx", r, offset), write(folder / "final.onnx", o, offset)
    reference = freeze(Mapped(r, offset), samples, SPEC, 5)
    files = {"trace": fp32, "slim": fp32, "fp16": final, "cast_cleanup": final}
    return chain.verify(Judge(reference, reference, OPTIONS), files, folder / "out", MADE).to_json()


def states(report: dict[str, Any]) -> dict[str, str]:
    return {check["check"]: check["state"] for check in report["checks"]}


@pytest.mark.parametrize("column", [1, 5])
def test_columns_beside_a_large_one_fail(column: int, tmp_path: Path) -> None:
    r = WEIGHTS * np.where(np.arange(6) == 3, 1000, 1).astype(np.float32)
    o = r * np.where(np.arange(6) == column, 0, 1).astype(np.float32)
    assert verified(tmp_path, r, r)["verdict"] == "passed"
    report = verified(tmp_path, r, o)
    assert report["verdict"] == "failed" and report["tensor_rms"] < OPTIONS.gates.tensor_rms_max
    expect(report["reasons"][0], "outputs-differ", f"channel {column} of axis 1", "'y'")
    assert states(report)["tensors"] == states(report)["adversarial"] == "failed"


def test_an_output_that_ignores_its_input_fails(tmp_path: Path) -> None:
    report = verified(tmp_path, 0.1 * WEIGHTS, 0 * WEIGHTS, offset=40)
    assert report["tensor_rms"] < OPTIONS.gates.tensor_rms_max
    assert report["verdict"] == "failed" and states(report)["reaction"] == "failed"
    expect(report["reasons"][0], "input-ignored", "'y'")
    both = verified(tmp_path, 0 * WEIGHTS, 0 * WEIGHTS, offset=40)
    assert both["verdict"] == "not verified" and states(both)["reaction"] == "not verified"
    expect(both["reasons"][0], "input-ignored", "'y'")


@pytest.mark.parametrize("rows", [X[:1], np.repeat(X[:1], 5, axis=0)], ids=["one", "alike"])
def test_samples_that_are_alike_leave_that_open(rows: np.ndarray, tmp_path: Path) -> None:
    report = verified(tmp_path, WEIGHTS, WEIGHTS, rows=rows)
    assert report["verdict"] == "passed" and states(report)["reaction"] == "not verified"
    (said,) = (line for line in report["not_verified"] if "samples-alike" in line)
    expect(said, "samples-alike", "'y'")


def test_a_stage_against_itself_is_verified() -> None:
    samples = [Sample(f"{number}", {"x": X[number]}, None, None) for number in range(4)]
    reference = freeze(Mapped(WEIGHTS, 0.0), samples, SPEC, 4)
    same = reference.compare(reference.outputs, OPTIONS)
    assert same.agreement()["state"] == "verified"
    assert [each.state for each in same.findings if each.check == "reaction"] == ["verified"]


class Masked(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
        return (torch.where(x > 0.3, x, -torch.inf),)


@pytest.mark.parametrize(("limit", "verdict"), [(0.3, "passed"), (0.5, "failed")])
def test_masked_values_of_the_reference_are_values(limit: float, verdict: str, tmp_path: Path) -> None:
    text = """<ir_version: 10, opset_import: ["" : 17]>
    masked (float[N,3] x) => (float[N,3] y) <float limit = {LIMIT}, float never = {-inf}> {
        above = Greater (x, limit)  y = Where (above, x, never)
    }"""
    for name, value in (("fp32", 0.3), ("final", limit)):
        onnx.save(onnx.parser.parse_model(text.replace("LIMIT", str(value))), tmp_path / f"{name}.onnx")
    samples = [Sample(str(number), {"x": row}, None, None) for number, row in enumerate(X)]
    spec = replace(SPEC, outputs=(OutputSpec("y"),))
    reference = freeze(Masked(), samples, spec, 5)
    assert np.isinf(reference.outputs["y"]).any()
    files = {"slim": tmp_path / "fp32.onnx", "cast_cleanup": tmp_path / "final.onnx"}
    report = chain.verify(Judge(reference, reference, OPTIONS), files, tmp_path / "out", MADE).to_json()
    assert report["verdict"] == verdict, report["reasons"]
    held = {check: states(report)[check] for check in ("tensors", "batch", "adversarial")}
    of_outputs = "verified" if verdict == "passed" else "failed"
    assert held == {"tensors": of_outputs, "batch": "verified", "adversarial": of_outputs}
    assert compare(*files.values(), {"x": X}, locate=False).verdict == verdict


class Counted(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x, (1000 * x).long()


@pytest.mark.parametrize(("added", "verdict"), [(0, "passed"), (1, "failed")])
def test_an_integer_of_a_chain_that_is_another_fails(added: int, verdict: str, tmp_path: Path) -> None:
    text = """<ir_version: 10, opset_import: ["" : 17]>
    counted (float[N,3] x) => (float[N,3] y, int64[N,3] n) <float many = {1000.0}, int64 more = {ADDED}> {
        y = Identity (x)  large = Mul (x, many)  whole = Cast <to = 7> (large)  n = Add (whole, more)
    }"""
    for name, more in (("fp32", 0), ("final", added)):
        onnx.save(onnx.parser.parse_model(text.replace("ADDED", str(more))), tmp_path / f"{name}.onnx")
    samples = [Sample(str(number), {"x": row}, None, None) for number, row in enumerate(X)]
    spec = replace(SPEC, outputs=(OutputSpec("y"), OutputSpec("n")))
    reference = freeze(Counted(), samples, spec, 5)
    files = {"slim": tmp_path / "fp32.onnx", "cast_cleanup": tmp_path / "final.onnx"}
    judge = Judge(reference, "none were given", OPTIONS)
    report = chain.verify(judge, files, tmp_path / "out").to_json()
    assert report["verdict"] == verdict
    assert compare(*files.values(), {"x": X}, locate=False).verdict == verdict
