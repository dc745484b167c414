"""A chain whose final file has outputs of other shapes than the reference's: it fails, and everything is written."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from tests.messages import expect
from tests.truehalf.verification.small_detector import OPTIONS
from truehalf.codes import codes_in
from truehalf.data.samples import Sample
from truehalf.io_spec.spec import IoSpec
from truehalf.report.page import page, verification_sections
from truehalf.runtime.ort import Session
from truehalf.verification.chain import chain
from truehalf.verification.chain.reference import Reference
from truehalf.verification.chain.stage import Judge
from truehalf.verification.runs import joined

CHECKED = {"tensors", "classes", "detections", "average_precision"}
X = np.random.default_rng(0).random((7, 300), dtype=np.float32)
PLAIN: dict[str, Any] = {"outputs": [{"name": "y"}, {"name": "seen"}]}
HEAD = '<ir_version: 10, opset_import: ["": 18]> g (float[b, 300] x) => (float{y} y, float[b, 300] seen)'
HEAD += " <int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] wide = {290}, int64[3] parts = "
HEAD += "{-1, 3, 100}>"
GOOD = "z = Relu(x) y = Reshape(z, parts)"
OTHERS = {
    "an axis cut": ("[b, c, d]", "z = Relu(x) w = Reshape(z, parts) y = Slice(w, zero, two, one)"),
    "an axis longer": ("[b, c, d]", "z = Relu(x) w = Reshape(z, parts) y = Concat<axis = 2>(w, w)"),
    "an axis more": ("[b, c, d, e]", "z = Relu(x) w = Reshape(z, parts) y = Unsqueeze(w, two)"),
    "an axis less": ("[b, c]", "y = Relu(x)"),
    "twice the rows": ("[b, c, d]", "z = Relu(x) w = Reshape(z, parts) y = Concat<axis = 0>(w, w)"),
    "the first row": ("[b, c, d]", "z = Relu(x) w = Reshape(z, parts) y = Slice(w, zero, one)"),
    "no rows": ("[b, c, d]", "z = Relu(x) w = Reshape(z, parts) y = Slice(w, zero, zero)"),
    "one number": ("", "y = ReduceMax<keepdims = 0>(x)"),
    "as wide as the batch": ("[b, c]", "s = Shape<end = 1>(x) w = Add(wide, s) z = Relu(x) y = Slice(z, zero, w, one)"),
}  # fmt: skip


def verified(folder: Path, fp32: Path, final: Path, spec: dict[str, Any], x: np.ndarray) -> dict[str, Any]:
    """The report of a chain with the FP32 file as its own reference, at batches of 5, 1 and 4."""
    samples = [Sample(f"made/{i}", {"x": row}, None, None) for i, row in enumerate(x)]
    names = [sample.name for sample in samples]
    outputs = joined([Session(fp32).run({"x": row[None]}) for row in x])
    outputs = {name: value.astype(np.float32) for name, value in outputs.items()}
    whole = IoSpec.from_json({"inputs": [{"name": "x", "shape": ["b", *x.shape[1:]]}]} | spec)
    reference = Reference(samples, names, names, outputs, whole, [], None)
    files = {"trace": fp32, "slim": fp32, "fp16": final, "cast_cleanup": final}
    judge = Judge(reference, reference.subset([0, 1]), replace(OPTIONS, pictures=0))
    report = chain.verify(judge, files, folder / "out", chain.Making(batch_sizes=(1, 4))).to_json()
    written = json.loads((folder / "out" / "verdict.json").read_text())
    details = json.loads((folder / "out" / "details.json").read_text())
    headline = {"state": "failed", "word": "", "sentence": "", "reasons": report["reasons"]}
    drawn = page({"title": "", "headline": headline} | verification_sections(written, details, folder / "out"))
    assert written["verdict"] == report["verdict"]
    assert {*codes_in(drawn)} >= {*codes_in("".join(report["reasons"][:1]))}
    return report


def of_text(folder: Path, shape: str, body: str, final: str = "final.onnx") -> Path:
    path = folder / final
    onnx.save(onnx.parser.parse_model(f"{HEAD.replace('{y}', shape)} {{ {body} seen = Neg(x) }}"), path)
    return path


def fails(report: dict[str, Any], code: str) -> str:
    """The sentence on the shape, which is the first reason of a failed stage: the gate prints it."""
    assert report["status"] == report["verdict"] == "failed"
    expect(report["reasons"][0], code)
    assert not {check["check"] for check in report["checks"] if check["state"] == "verified"} & CHECKED
    return str(report["reasons"][0])


@pytest.mark.parametrize("name", OTHERS)
def test_another_shape_fails(name: str, tmp_path: Path) -> None:
    fp32 = of_text(tmp_path, "[b, c, d]", GOOD, "fp32.onnx")
    report = verified(tmp_path, fp32, of_text(tmp_path, *OTHERS[name]), PLAIN, X)
    expect(fails(report, "wrong-shape"), None, "'y'")
    assert report["tensor_rms"] == "inf"
    row = report["stages"]["cast_cleanup"]
    expect(row["reason"], "wrong-shape", "'y'")
    assert row["max_abs_error"] == {"seen": 0.0}
    expect(row["reason"], None, "[5, 3, 100]")


@pytest.mark.parametrize("axis", ["zero", "one", "two"])
def test_a_shape_that_is_right_but_at_another_batch_fails(axis: str, tmp_path: Path) -> None:
    """It is at 5 samples, at 2 and at 1."""
    fp32 = of_text(tmp_path, "[b, c, d]", GOOD, "fp32.onnx")
    at_four = "s = Shape<end = 1>(x) f = Mul(two, two) q = Equal(s, f) c = Cast<to = 7>(q) far = Add(wide, wide)"
    at_four += " minus = Neg(c) e = Where(q, minus, far) z = Relu(x) w = Reshape(z, parts)"
    report = verified(
        tmp_path, fp32, of_text(tmp_path, "[b, c, d]", f"{at_four} y = Slice(w, zero, e, {axis})"), PLAIN, X
    )
    assert report["verdict"] == "failed" and report["tensor_rms"] == 0
    (check,) = (check for check in report["checks"] if check["check"] == "batch")
    expect(check["reason"], "wrong-shape", "'y'", "batch 4")
