"""A file is judged as it lies on disk: what no runtime loads fails, whatever an emulation computes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from tests.messages import expect
from truehalf.api import compare, convert
from truehalf.config.precision import Precision
from truehalf.ir.model_forms import ModelFile
from truehalf.verification.chain import quick_check
from truehalf.verification.open_file import judge_file
from truehalf.verification.pinning.reconversion import Reconversion

EPSILON, FILL = "<float e = {0.00001}>", "<float e = {0.0}, float fill = {-1.0}>"
# By name: the FP32 graph, the FP16 one in which float16 meets float32, both with their weights, and the node.
MIXED = {
    "a fill": (
        "c = Greater(x, e)  y = Where(c, x, fill)",
        "t = Cast <to = 10> (x)  z = Cast <to = 10> (e)  c = Greater(t, z)  y = Where(c, t, fill)",
        FILL,
        "Where",
    ),
    "a branch": (
        "k = Constant <value = bool {1}> ()  y = If (k) <then_branch = a () => (float[n,8] u) { u = Add(x, e) },"
        " else_branch = b () => (float[n,8] o) { o = Neg(x) }>",
        "k = Constant <value = bool {1}> ()  t = Cast <to = 10> (x)  y = If (k) <then_branch = a () => (float16[n,8] u)"
        " { u = Add(t, e) }, else_branch = b () => (float16[n,8] o) { o = Neg(t) }>",
        EPSILON,
        "Add",
    ),
}
SAMPLES = {"x": np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)}


def written(path: Path, body: str, weights: str = "", output: str = "float", opset: str = '"" : 17') -> Path:
    text = f"<ir_version: 8, opset_import: [{opset}]> g (float[n,8] x) => ({output}[n,8] y) {weights} {{ {body} }}"
    model = onnx.parser.parse_model(text)
    weight_names = {each.name for each in model.graph.initializer}
    inputs = [each for each in model.graph.input if each.name not in weight_names]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    for number, node in enumerate(model.graph.node):
        node.name = f"/net/{node.op_type}_{number}"
    onnx.save(model, path)
    return path


def pair(folder: Path, case: str) -> tuple[Path, Path]:
    fp32, fp16, weights, _ = MIXED[case]
    return written(folder / "a.onnx", fp32, weights), written(folder / "b.onnx", fp16, weights, "float16")


@pytest.mark.parametrize("case", MIXED)
def test_float16_and_float32_in_one_node_fail_and_the_node_is_named(case: str, tmp_path: Path) -> None:
    report = compare(*pair(tmp_path, case), SAMPLES)
    assert report.verdict == "failed" and report.samples == 0
    expect(report.reasons[0], "types-mixed", MIXED[case][3])
    assert report.first_bad_node is not None and report.first_bad_node in report.reasons[0]
    assert report.to_json()["checks"] == [{"check": "file", "state": "failed", "reason": report.reasons[0]}]


def test_external_weights_are_judged_by_their_path(tmp_path: Path) -> None:
    reference, candidate = pair(tmp_path, "a fill")
    model = onnx.load(candidate)
    onnx.save(model, candidate, save_as_external_data=True, location="w.bin", size_threshold=0)
    (found,) = judge_file(ModelFile(candidate), ModelFile(reference))
    assert found.state == "failed" and found.facts["node"].startswith("/net/Where")


GOOD = "t = Cast <to = 10> (x)  u = Relu(t)  r = Cast <to = 1> (u)  y = Mul(r, x)"


def test_a_mixed_file_with_casts_between_is_verified(tmp_path: Path) -> None:
    reference = written(tmp_path / "a.onnx", "r = Relu(x)  y = Mul(r, x)")
    (found,) = judge_file(ModelFile(written(tmp_path / "b.onnx", GOOD)), ModelFile(reference))
    assert (found.check, found.state) == ("file", "verified")
    report = compare(reference, tmp_path / "b.onnx", SAMPLES)
    assert {"check": "file", "state": "verified", "reason": ""} in report.to_json()["checks"]


def test_what_onnx_runtime_finds_invalid_fails(tmp_path: Path) -> None:
    """The output is stated as float32, and is float16."""
    reference = written(tmp_path / "a.onnx", "y = Relu(x)")
    candidate = written(tmp_path / "b.onnx", "t = Cast <to = 10> (x)  y = Relu(t)")
    report = compare(reference, candidate, SAMPLES)
    assert report.verdict == "failed"
    expect(report.reasons[0], "runtime-refuses", candidate)


def test_what_it_refuses_in_the_reference_too_does_not_fail(tmp_path: Path) -> None:
    reference = written(tmp_path / "a.onnx", "t = Cast <to = 10> (x)  y = Relu(t)")
    (refused, *_) = judge_file(ModelFile(reference), ModelFile(reference))
    assert refused.state == "not verified" and not refused.decides


@pytest.mark.parametrize("body", ["e = example.com.Grow (t)  u = Relu(t)", "e = MyPlugin_TRT (t)  u = Relu(t)"])
def test_a_plugin_is_no_fault(body: str, tmp_path: Path) -> None:
    opset = '"" : 17, "example.com" : 1'
    reference = written(tmp_path / "a.onnx", body.replace("(t)", "(x)") + "  y = Mul(u, x)", opset=opset)
    cast = "t = Cast <to = 10> (x)  " + body + "  r = Cast <to = 1> (u)  y = Mul(r, x)"
    candidate = written(tmp_path / "b.onnx", cast, opset=opset)
    found = judge_file(ModelFile(candidate), ModelFile(reference))
    assert not [each for each in found if each.state == "failed"]


def test_a_false_shape_is_named_and_fails_nothing(tmp_path: Path) -> None:
    """onnx's checker refuses a stated output shape that no runtime holds a file to."""
    reference = written(tmp_path / "a.onnx", "r = Relu(x)  y = Mul(r, x)")
    candidate = written(tmp_path / "b.onnx", GOOD)
    model = onnx.load(candidate)
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 7
    onnx.save(model, candidate)
    (found,) = judge_file(ModelFile(candidate), ModelFile(reference))
    assert found.state == "not verified" and not found.decides
    expect(found.reason, "model-invalid", "checker")


def test_a_file_is_judged_once_in_a_search_for_pins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check of a conversion that fails compares many files; only the one that is handed on is judged."""
    from truehalf.verification.chain import compare as comparing

    judged: list[Path] = []
    judge = comparing.judge_file

    def counted(file: ModelFile, reference: ModelFile) -> Any:
        judged.append(file.path)
        return judge(file, reference)

    for module in (comparing, quick_check):
        monkeypatch.setattr(module, "judge_file", counted)
    source = written(tmp_path / "a.onnx", "a = Add(x, k)  y = Sub(a, k)", "<float k = {1000.0}>")
    precision = Precision(rules="autocast", data_max=None, placement="eager")  # type: ignore[arg-type]
    check = convert(source, tmp_path / "o.onnx", samples=SAMPLES, precision=precision).report.check
    assert check is not None and check.state == "failed" and check.node_block_list
    assert judged == [tmp_path / "o.onnx"]


def test_a_converted_file_that_no_runtime_loads_fails_its_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference, candidate = pair(tmp_path, "a fill")
    found = quick_check.check_conversion(reference, candidate, None, Reconversion(Precision(), None, None)).check
    assert found.state == "failed" and found.first_bad_node == "/net/Where_3"
    expect(found.reason, "types-mixed")
