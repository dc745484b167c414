"""The door `compare`: interfaces, specs, options, files; what is wrong is said, all of it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from tests.messages import expect, raises
from tests.truehalf.verification.two_models import CLASSES, OVERFLOW, PLAIN, SAME, X, faults, held, model
from truehalf.codes import codes_in
from truehalf.config.verification import Evaluation, GatesConfig, VerifyConfig
from truehalf.verification.chain.compare import compare

# --- interfaces -------------------------------------------------------------------------------------------------------


def test_a_file_passes_against_itself(tmp_path: Path) -> None:
    report = held(tmp_path, PLAIN, PLAIN)
    assert report.passed and report.verdict == "passed" and report.reasons == [] and report.task == "tensors"
    assert (report.evaluation, report.provider, report.reference_evaluation, report.samples) == (
        "fp32-cpu",
        "CPUExecutionProvider",
        "fp32-cpu",
        1,
    )
    errors = report.outputs["y"]
    assert (errors.max_abs, errors.rms, errors.response, errors.passed) == (0.0, 0.0, None, True)
    assert report.first_bad_node is None and report.suspects == [] and report.worst_sample is None


def test_float16_inside_a_function_is_emulated(tmp_path: Path) -> None:
    """x * 4e4 * 4e4 is Inf in FP16, and x again behind the two divisions in FP32."""
    function = """<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
        g (float[N,3] x) => (float[N,3] y) { y = local.scaled (x) }
        <domain: "local", opset_import: ["" : 17]> scaled (a) => (b) {
            h = Cast <to = 10> (a)  large = Constant <value_float = 40000.0> ()  big = Cast <to = 10> (large)
            p = Mul (h, big)  q = Mul (p, big)  r = Div (q, big)  s = Div (r, big)  b = Cast <to = 1> (s) }"""
    reference = model(tmp_path / "fp32.onnx", "(float[N,3] x) => (float[N,3] y) { y = Identity (x) }")
    onnx.save(onnx.parser.parse_model(function), tmp_path / "function.onnx")
    report = compare(reference, tmp_path / "function.onnx", {"x": X}, locate=False)
    assert (report.verdict, report.evaluation) == ("failed", "emulated-fp16") and report.outputs["y"].inf == X.size


def test_a_comparison_of_nothing_is_no_pass(tmp_path: Path) -> None:
    report = held(tmp_path, PLAIN, PLAIN, {"x": -np.abs(X)})
    assert report.verdict == "not verified"
    expect(report.reasons[0], "input-ignored", "'y'", 4)
    (said,) = [said for said in report.not_verified if "nothing-compared" in codes_in(said)]
    expect(said, None, "'y'", 0)
    infinite = "(float[N,3] x) => (float[N,3] y) { z = Sub (x, x) y = Log (z) }"
    report = held(tmp_path, infinite, infinite)
    assert report.verdict == "not verified"
    assert {code for reason in report.reasons for code in codes_in(reason)} == {"input-ignored", "nothing-compared"}


def test_inputs_outside_the_declared_range_are_said(tmp_path: Path) -> None:
    entry = {"name": "x", "range": [0, 1], "normalization": {"where": "inside the graph"}}
    for scale, said in ((1, False), (255, True)):
        inputs = {"x": np.linspace(0, scale, 12, dtype=np.float32).reshape(4, 3)}
        found = held(tmp_path, PLAIN, PLAIN, inputs, spec={"inputs": [entry], "outputs": []}).not_verified
        listed = [line for line in found if "'x'" in line and "shapes of" not in line]
        assert len(listed) == said
        for line in listed:
            expect(line, None, "0 to 255", "0 to 1")


def test_a_candidate_without_float16_is_said_and_cuda_is_never_the_cpu(tmp_path: Path) -> None:
    assert [line.split(":")[0] for line in held(tmp_path, PLAIN, PLAIN).not_verified].count("FP16") == 1
    import onnxruntime

    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        assert "CUDAExecutionProvider" in faults(tmp_path, PLAIN, PLAIN, evaluation=Evaluation.cuda)[0]


def test_every_difference_of_the_interfaces_is_listed(tmp_path: Path) -> None:
    lines = faults(
        tmp_path,
        "(float[N,3] x, float[N] a) => (float[N,3] y, int64[N] i, float[N] z) { y = Relu (x) i = f (a) z = Neg (a) }",
        "(float[N,3,1] x, float[N] b) => (int32[N] i, float[N,3] y) { y = Relu (x) i = f (b) }",
    )
    assert [codes_in(line) for line in lines] == [
        ["not-comparable"], ["wrong-name"], ["wrong-name"], ["wrong-shape"], ["wrong-name"], ["wrong-dtype"]
    ]  # fmt: skip
    expect(lines[1], None, "input 'a'", "candidate")
    expect(lines[2], None, "input 'b'", "reference")
    expect(lines[3], None, "input 'x'", "2 axes", 3)
    expect(lines[4], None, "output 'z'", "candidate")
    expect(lines[5], None, "output 'i'", "INT64", "INT32")


def test_another_order_is_a_difference_and_other_sides_or_float16_are_none(tmp_path: Path) -> None:
    two = "(float[N,3] x, float[N,3] z) => (float[N,3] y) { y = Sub (x, z) }"
    other = two.replace("float[N,3] x, float[N,3] z", "float[N,3] z, float[N,3] x")
    first, line = faults(tmp_path, two, other)
    expect(first, "not-comparable")
    expect(line, "other-order", "inputs", "x, z", "z, x")
    half = "(float16[4,3] x) => (float16[4,3] y) { y = Relu (x) }"
    report = held(tmp_path, PLAIN, half)
    assert report.passed and report.evaluation == "emulated-fp16"


def test_weights_that_an_old_file_lists_as_inputs_are_none(tmp_path: Path) -> None:
    listed = "(float[N,3] x, float[3] w) => (float[N,3] y) <float[3] w = {1.0, 2.0, 3.0}> { y = Mul (x, w) }"
    inside = "(float[N,3] x) => (float[N,3] y) <float[3] w = {1.0, 2.0, 3.0}> { y = Mul (x, w) }"
    assert held(tmp_path, listed, inside).passed


@pytest.mark.parametrize(
    ("kind", "nodes"),
    [
        ("seq(float[N,3])", "e = Exp (u) s = SequenceConstruct (u, e)"),
        ("seq(float[3])", "s = SplitToSequence<axis = 0, keepdims = 0> (u)"),
        ("seq(int64[N])", "i = ArgMax<axis = 1, keepdims = 0> (u) s = SplitToSequence (i)"),
        ("optional(float[N,3])", "s = Optional (u)"),
    ],
)
def test_outputs_that_are_no_tensors_are_compared_by_their_values(kind: str, nodes: str, tmp_path: Path) -> None:
    text = f"(float[N,3] x) => ({kind} s) <float f = {{1.5}}> {{ u = Mul (x, f) {nodes} }}"
    assert held(tmp_path, text, text).passed
    report = held(tmp_path, text, text.replace("1.5", "-1.4"), locate=True)
    assert report.verdict == "failed" and "outputs-differ" in codes_in(report.reasons[0])
    assert report.first_bad_node == "Mul -> u"


# --- specs, options, files --------------------------------------------------------------------------------------------


def test_a_spec_may_be_given_as_a_file_and_overrides_the_files_own(tmp_path: Path) -> None:
    a = model(tmp_path / "a.onnx", PLAIN, CLASSES)
    (tmp_path / "spec.yaml").write_text("outputs: [{name: y}]")
    assert compare(a, a, {"x": X}).task == "classification"
    assert compare(a, a, {"x": X}, spec=tmp_path / "spec.yaml").task == "tensors"
    assert compare(a, a, {"x": X}, spec={}).task == "tensors"


@pytest.mark.parametrize(
    ("spec", "codes", "facts"),
    [
        ("{", ["wrong-spec"], ["I/O spec"]),
        ("[1]", ["wrong-spec"], ["list", "I/O spec"]),
        ({"outputs": [{"name": "z"}]}, ["wrong-spec", "wrong-name"], ["output 'z'", "'y'", "{}"]),
        (
            {"outputs": [{"name": "y", "kind": "boxes"}]},
            ["wrong-spec", "missing-key", "missing-key", "in-conflict"],
            ["output 'y'", "format cxcywh", "xyxy", "normalized True", "False", "{}"],
        ),
    ],
)
def test_faults_of_specs(tmp_path: Path, spec: Any, codes: list[str], facts: list[str]) -> None:
    a = model(tmp_path / "a.onnx", PLAIN, spec)
    with raises("wrong-spec", "truehalf.io_spec", a, *facts) as error:
        compare(a, a, {"x": X})
    assert codes_in(str(error.value)) == codes


def test_a_file_of_a_spec_that_is_none_is_named(tmp_path: Path) -> None:
    a = model(tmp_path / "a.onnx", PLAIN)
    with raises("file-missing", tmp_path / "absent.yaml", "I/O spec"):
        compare(a, a, {"x": X}, spec=tmp_path / "absent.yaml")
    (tmp_path / "broken.yaml").write_text("{")
    with raises("file-unreadable", tmp_path / "broken.yaml", "I/O spec"):
        compare(a, a, {"x": X}, spec=tmp_path / "broken.yaml")


def test_outputs_that_are_not_of_their_kind_are_refused(tmp_path: Path) -> None:
    kinds = [{"name": "y", "kind": "logits", "activation": "sigmoid"}]
    boxes = [{"name": "b", "kind": "boxes", "format": "xyxy", "normalized": False}]
    a = model(tmp_path / "a.onnx", "(float[N,3] x) => (float[N,3] y, float[N,3] b) { y = Relu (x) b = Relu (x) }")
    with raises("wrong-shape") as error:
        compare(a, a, {"x": X}, spec={"outputs": kinds + boxes})
    of_y, of_b = str(error.value).splitlines()[1:]
    expect(of_y, "wrong-shape", "output 'y'", "'logits'", "[N, queries, classes]", "[4, 3]")
    expect(of_b, "wrong-shape", "output 'b'", "'boxes'", "[N, boxes, 4]", "[4, 3]")


def test_numbers_of_numpy_are_numbers(tmp_path: Path) -> None:
    assert held(tmp_path, PLAIN, PLAIN, tolerance=np.float32(0.5), batch=np.int64(2)).passed


@pytest.mark.parametrize(
    "wrong",
    [
        {"evaluation": ("fp16", "unknown-choice"), "batch": (2.5, "wrong-type"), "iou_threshold": ("x", "wrong-type")},
        {"batch": (0, "out-of-range"), "score_threshold": (2, "out-of-range"), "memory_gb": (0, "out-of-range")},
    ],
    ids=["types", "bounds"],
)
def test_all_bad_options_are_listed(wrong: dict[str, tuple[Any, str]]) -> None:
    with raises("bad-options") as error:
        VerifyConfig(**{name: value for name, (value, _) in wrong.items()})
    lines = {line.split(":")[0].removeprefix("  - "): line for line in str(error.value).splitlines()[1:]}
    assert lines.keys() == wrong.keys()
    for name, (value, code) in wrong.items():
        expect(lines[name], code, repr(value))


def test_bad_gates_and_a_bad_search_are_refused(tmp_path: Path) -> None:
    with raises("bad-options", "tensor_rms_max", -1):
        GatesConfig(tensor_rms_max=-1)
    (line,) = faults(tmp_path, PLAIN, PLAIN, locate=3)
    expect(line, "unknown-choice", "locate", 3)


def test_a_file_that_cannot_be_loaded_or_run_is_named_with_its_node(tmp_path: Path) -> None:
    unknown = "(float[N,3] x) => (float[N,3] y) { [odd] y = Nonsense (x) }"
    (line,) = faults(tmp_path, PLAIN, unknown)
    assert "other.onnx" in line and "Nonsense" in line and len(line) < 700
    broken = "(float[N,3] x) => (float[M,K] y) <int64[2] s = {5, 5}> { [fold] y = Reshape (x, s) }"
    (line,) = faults(tmp_path, PLAIN, broken)
    assert len(line) < 700
    expect(line, None, "other.onnx", "candidate", "fold")
    with raises("file-missing", tmp_path / "absent.onnx"):
        compare(tmp_path / "fp32.onnx", tmp_path / "absent.onnx", {"x": X})


def test_a_report_is_json_and_the_same_every_time(tmp_path: Path) -> None:
    texts = []
    for _ in range(2):
        report = held(tmp_path, SAME, OVERFLOW, {"x": X * 60000})
        texts.append(json.dumps(report.to_json(), allow_nan=False))
    assert texts[0] == texts[1]
    content = json.loads(texts[0])
    assert content["passed"] is False and content["outputs"]["y"]["max_abs"] == "inf"
