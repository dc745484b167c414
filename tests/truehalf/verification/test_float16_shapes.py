"""A file whose shapes FP16 arithmetic decides (pairs for compare: tests/corpus/pairs/shapes.py)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper

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
from truehalf.verification.chain.stage_results import measure_file
from truehalf.verification.float16_shapes import float16_shape_arithmetic
from truehalf.verification.metrics.decoded import found_in
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
    return Reference(samples, names, names, outputs, spec, found_in(outputs, spec), None, None)


@pytest.mark.parametrize("body", ["Slice", "TopK", "Resize"])
def test_verify_fails_on_it(body: str, tmp_path: Path) -> None:
    reference = reference_of(saved(tmp_path / "fp32.onnx", body, np.float32, 2 / 3))
    options = validate(composed()).verify
    stage = measure_file(of(saved(tmp_path / "bad.onnx", body, np.float16, 2 / 3)), reference, 2, options)
    expect(stage.facts["unrounded_shapes"], "wrong-shape", "'y'", "[2, 200]", "[2, 199]")
    assert stage.facts["shape_faults"] == [] and stage.facts["tensor_rms"] == 0, "it is right where it is rounded"
    reference = reference_of(saved(tmp_path / "fp32.onnx", body, np.float32, 0.5))
    stage = measure_file(of(saved(tmp_path / "good.onnx", body, np.float16, 0.5)), reference, 2, options)
    assert stage.facts["tensor_rms"] == 0 and stage.facts["shapes_unknown"] is None
    assert stage.facts["unrounded_shapes"] is None


def test_verify_fails_on_rows_that_are_too_many(tmp_path: Path) -> None:
    """They were cut off as if they had filled up a batch."""
    texts = ["y = Relu(x)", "z = Relu(x) y = Concat<axis = 0>(z, z)"]
    paths = [tmp_path / "one.onnx", tmp_path / "twice.onnx"]
    for path, body in zip(paths, texts, strict=True):
        head = '<ir_version: 10, opset_import: ["": 21]> g (float[b, 300] x) => (float[c, 300] y)'
        onnx.save(onnx.parser.parse_model(f"{head} {{ {body} }}"), path)
    stage = measure_file(of(paths[1]), reference_of(paths[0]), 2, validate(composed()).verify)
    (fault,) = stage.facts["shape_faults"]
    expect(fault, "wrong-shape", "[2, 300]", "[4, 300]")


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
    report = verify(reference, {"slim": fp32, "cast_cleanup": half}, tmp_path / "out", replace(OPTIONS, profile=False))
    found = compare(fp32, half, {"x": X}, locate=False)
    for verdict, reasons in ((report.verdict, report.reasons), (found.verdict, found.reasons)):
        (said,) = reasons
        assert verdict == "not verified"
        expect(said, "runtime-refuses", "no kernel", "FP16")


# --- the cause --------------------------------------------------------------------------------------------------------


def with_constants(body: str, dtype: type, k: float, **changed: int) -> onnx.ModelProto:
    """With other integers, where they are given."""
    made = model(body, dtype, k)
    for weight in made.graph.initializer:
        if weight.name in changed:
            like = numpy_helper.to_array(weight)
            weight.CopyFrom(numpy_helper.from_array(np.full_like(like, changed[weight.name]), weight.name))
    return made


CHANGED: dict[str, tuple[str, float, dict[str, int], tuple[object, ...]]] = {
    "where a slice begins": ("Slice", 0.5, {"zero": 10}, ("'zero'", "[10]", "[0]")),
    "where a range begins": ("Range", 0.5, {"c0": 20}, ("'c0'", 20, 0)),
    "the step of a range": ("Range", 0.5, {"c1": 3}, ("'c1'", 3, 1)),
    "how much is put in front": ("Pad", 0.5, {"zero": 4}, ("'zero'", "[4]", "[0]")),
    "a factor": ("TopK", 0.25, {}, ("'k'", 0.25, 0.5)),
    "a factor, rounded": ("Resize", 0.4, {}, ("'k'", "0.399902", 0.5)),
    "a factor of trips": ("Loop", 0.125, {}, ("'k'", 0.125, 0.5)),
}


@pytest.mark.parametrize("name", CHANGED)
def test_a_changed_constant_is_the_cause(name: str) -> None:
    body, k, constants, facts = CHANGED[name]
    found = compare_protos(model(body, np.float32, 0.5), with_constants(body, np.float16, k, **constants))
    said = next(reason for reason in found.reasons if "decides it" in reason)
    expect(said, "wrong-shape", "'y'", "reference", *facts)
    assert "FP16" not in "".join(found.reasons)


@pytest.mark.parametrize("body", ["Slice", "TopK", "Resize", "Expand"])
@pytest.mark.parametrize("seed", range(2))
def test_a_factor_that_a_generator_draws(body: str, seed: int) -> None:
    factor, other = (
        float(each) / 16 for each in np.random.default_rng(seed).choice(np.arange(1, 16), 2, replace=False)
    )
    found = compare_protos(model(body, np.float32, factor), model(body, np.float16, other))
    expect(next(iter(found.reasons)), "wrong-shape", "'k'", f"{other:.6g}", f"{factor:.6g}")


@pytest.mark.parametrize("body", ["Slice", "TopK", "Resize", "Expand"])
def test_rounding_is_the_cause_where_it_is(body: str) -> None:
    found = compare_protos(model(body, np.float32, 2 / 3), model(body, np.float16, 2 / 3))
    expect(next(iter(found.reasons)), "wrong-shape", "FP16", "Cast -> f")


def test_another_operator_is_neither() -> None:
    """It is said that the shape is another, and nothing of FP16."""
    found = compare_protos(model("Slice", np.float32, 0.5), model("Slice", np.float16, 0.5, "m = Add(f, k)"))
    assert found.verdict == "failed"
    assert "FP16" not in "".join(found.reasons)


def compare_protos(reference: onnx.ModelProto, candidate: onnx.ModelProto) -> Any:
    return truehalf.compare(reference, candidate, {"x": X}, locate=False)
