"""A file whose shapes FP16 arithmetic decides (pairs for compare: tests/corpus/pairs/shapes.py)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import truehalf
from tests.configurations import composed
from tests.corpus.pairs.shapes import X, model
from tests.messages import expect
from truehalf.config.validate import validate
from truehalf.data.samples import Sample
from truehalf.errors import StageError
from truehalf.io_spec.spec import IoSpec
from truehalf.ir.model_forms import ModelFile
from truehalf.runtime.ort import Session
from truehalf.verification import open_file
from truehalf.verification.chain.chain import verify
from truehalf.verification.chain.compare import compare
from truehalf.verification.chain.reference import Reference
from truehalf.verification.chain.stage import FileResult, Judge
from truehalf.verification.float16_shapes import float16_shape_arithmetic
from truehalf.verification.open_file import OpenFile, opened


def test_the_nodes_are_named() -> None:
    half = onnx.shape_inference.infer_shapes(model("Slice", np.float16, 0.5, "m0 = Mul(f, k) [floor] m = Floor(m0)"))
    assert float16_shape_arithmetic(ir.from_proto(half)) == ["floor", "Mul -> m0", "Cast -> f"]
    assert float16_shape_arithmetic(ir.from_proto(model("Slice", np.float32, 0.5))) == []


OPTIONS = validate(composed()).verify


# --- the chain --------------------------------------------------------------------------------------------------------


def saved(path: Path, body: str, dtype: type, k: float) -> Path:
    path.parent.mkdir(exist_ok=True)
    onnx.save(model(body, dtype, k), path)
    return path


def of(path: Path) -> OpenFile:
    return opened(ModelFile(path), "emulated-fp16")


def reference_of(path: Path) -> Reference:
    samples = [Sample(str(i), {"x": row}, None, None) for i, row in enumerate(X)]
    names = [sample.name for sample in samples]
    outputs = Session(path).run({"x": X})
    spec = IoSpec.from_json({"outputs": [{"name": "y"}]})
    return Reference(samples, names, names, outputs, spec, [], None)


def measured(path: Path, reference: Reference) -> FileResult:
    return Judge(reference, "none were given", OPTIONS).of_open_file(of(path), (1,))


def wrong_shapes(result: FileResult) -> list[str]:
    return [each.reason for each in result.findings(()) if "wrong-shape" in each.reason]


@pytest.mark.parametrize("body", ["Slice", "TopK", "Resize"])
def test_verify_fails_on_it(body: str, tmp_path: Path) -> None:
    reference = reference_of(saved(tmp_path / "fp32.onnx", body, np.float32, 2 / 3))
    result = measured(saved(tmp_path / "bad.onnx", body, np.float16, 2 / 3), reference)
    (wrong,) = wrong_shapes(result)
    expect(wrong, "wrong-shape", "'y'", "[2, 200]", "[2, 199]")
    assert result.comparison.measures["tensor_rms"] == 0, "it is right where it is rounded"
    reference = reference_of(saved(tmp_path / "fp32.onnx", body, np.float32, 0.5))
    result = measured(saved(tmp_path / "good.onnx", body, np.float16, 0.5), reference)
    assert result.comparison.measures["tensor_rms"] == 0 and result.shapes == []


def test_a_file_that_the_cpu_provider_refuses_is_not_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """compare said so, and the chain passed it: what decides a shape may be decided otherwise by the engine."""
    fp32 = saved(tmp_path / "slim" / "model.onnx", "Slice", np.float32, 0.5)
    half = saved(tmp_path / "final" / "model.onnx", "Slice", np.float16, 0.5)
    reference = reference_of(fp32)

    class Refuses(Session):
        def __init__(self, path: Path, **options: Any) -> None:
            if path == half:
                raise StageError("runtime-refuses", "no kernel")
            super().__init__(path, **options)

    monkeypatch.setattr(open_file, "Session", Refuses)
    judge = Judge(reference, "none were given", replace(OPTIONS, profile=False))
    report = verify(judge, {"slim": fp32, "cast_cleanup": half}, tmp_path / "out")
    found = compare(fp32, half, {"x": X}, locate=False)
    for verdict, reasons in ((report.verdict, report.reasons), (found.verdict, found.reasons)):
        (said,) = reasons
        assert verdict == "not verified"
        expect(said, "runtime-refuses", "no kernel", "FP16")


# --- the cause --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", ["Slice", "TopK", "Resize", "Expand"])
def test_rounding_is_the_cause_where_it_is(body: str) -> None:
    found = compare_protos(model(body, np.float32, 2 / 3), model(body, np.float16, 2 / 3))
    expect(next(iter(found.reasons)), "wrong-shape", "FP16", "Cast -> f")


@pytest.mark.parametrize(("k", "arithmetic"), [(0.5, "m = Add(f, k)"), (0.25, "m = Mul(f, k)")])
def test_another_operator_or_constant_is_not(k: float, arithmetic: str) -> None:
    """It is said that the shape is another, and nothing of FP16."""
    found = compare_protos(model("Slice", np.float32, 0.5), model("Slice", np.float16, k, arithmetic))
    assert found.verdict == "failed"
    assert "FP16" not in "".join(found.reasons)


def compare_protos(reference: onnx.ModelProto, candidate: onnx.ModelProto) -> Any:
    return truehalf.compare(reference, candidate, {"x": X}, locate=False)
