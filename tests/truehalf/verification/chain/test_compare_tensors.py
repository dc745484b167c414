"""Outputs element by element: the tensor rule, and classes beside it."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from tests.messages import expect
from tests.truehalf.verification.two_models import ADDED, CLASSES, X, constant, held, model
from truehalf.codes import codes_in
from truehalf.verification.chain.compare import compare

# --- the yardstick ----------------------------------------------------------------------------------------------------


def scaled(by: float) -> str:
    return f"(float[N,3] x) => (float[N,3] y) <float s = {{{by}}}> {{ y = Mul (x, s) }}"


def test_an_error_is_a_share_of_the_outputs_scale(tmp_path: Path) -> None:
    assert held(tmp_path, scaled(1000), scaled(1009)).passed
    report = held(tmp_path, scaled(1000), scaled(1011))
    assert report.verdict == "failed" and len(report.reasons) == 1
    expect(report.reasons[0], "outputs-differ", "FP16 moves output 'y' by 1.10%", "half a step of float16 moves it by")
    assert held(tmp_path, scaled(1000), scaled(1011), tolerance=0.02).passed
    assert not held(tmp_path, scaled(1000), scaled(1000.001), tolerance=0).passed
    assert held(tmp_path, scaled(0), scaled(0), tolerance=0).verdict == "not verified", "nothing reacts to the input"
    assert held(tmp_path, scaled(0), scaled(1e-6)).verdict == "failed"


@pytest.mark.parametrize(
    ("draw", "step"),
    [
        (lambda rng: rng.integers(0, 256, (2, 3, 16, 16)) / 255, "a pixel"),
        (lambda rng: np.round(0.2 * rng.normal(size=(2, 512)) * 2**15) / 2**15, "16-bit audio"),
        (lambda rng: rng.normal(size=(2, 512)), "float16"),
    ],
)
def test_half_a_step_excuses_as_much_as_it_does_itself(tmp_path: Path, draw: Any, step: str) -> None:
    """A network that makes much of little: sines of a thousand times its input."""
    x = draw(np.random.default_rng(0)).astype(np.float32)
    sides = ",".join(map(str, x.shape[1:]))
    text = f"(float[N,{sides}] x) => (float[N,{sides}] y) <float k = {{STEEP}}> {{ a = Mul (x, k) y = Sin (a) }}"
    gains = {"a pixel": 5.0, "16-bit audio": 700.0, "float16": 40.0}
    moved = {"a pixel": 0.01, "16-bit audio": 0.01, "float16": 0.01}
    reference, near = (text.replace("STEEP", str(gains[step] + more)) for more in (0, moved[step] * 0.9))
    report = held(tmp_path, reference, near, {"x": x})
    assert report.passed, report.reasons
    errors = report.outputs["y"]
    if errors.response is not None:
        expect(errors.reason, None, f"half a step of {step} moves it by")
    assert not held(tmp_path, reference, text.replace("STEEP", str(gains[step] * 1.05)), {"x": x}).passed


@pytest.mark.parametrize(
    ("reference", "candidate", "verdict", "facts"),
    [
        ([0, -np.inf, 0], [0, -np.inf, 0], "passed", None),
        ([0, -np.inf, 0], [0, -65504, 0], "failed", ["Inf"]),
        ([0, -np.inf, 0], [0, np.inf, 0], "failed", ["Inf"]),
        ([0, 0, 0], [0, np.inf, np.nan], "failed", ["4 NaN", "4 Inf", 12]),
        ([0, np.nan, 0], [0, np.nan, 0], "passed", None),
        ([0, np.nan, 0], [0, 1, 0], "not verified", ["NaN"]),
        ([0, np.nan, 0], [1, np.nan, 0], "failed", ["FP16 moves output"]),
        ([0, -np.inf, 0], [0, np.nan, 0], "failed", ["Inf"]),
    ],
)
def test_values_that_are_no_numbers(
    tmp_path: Path, reference, candidate, verdict: str, facts: list[object] | None
) -> None:
    a = model(tmp_path / "a.onnx", ADDED, **constant(*reference))
    b = model(tmp_path / "b.onnx", ADDED, **constant(*candidate))
    report = compare(a, b, {"x": X}, locate=False)
    assert report.verdict == verdict
    if facts is None:
        assert report.reasons == []
        return
    expect(report.reasons[0], None, "'y'", *facts)
    new_or_none = verdict == "not verified" or "4 Inf" in facts
    assert codes_in(report.reasons[0]) == ["not-finite" if new_or_none else "outputs-differ"]


def test_other_shapes_fail_and_empty_outputs_are_not_verified(tmp_path: Path) -> None:
    found = "(float[N,3] x) => (int64[2,K] y) <float t = {LIMIT}> { z = Sub (x, t) r = Relu (z) y = NonZero (r) }"
    report = held(tmp_path, found.replace("LIMIT", "0.0"), found.replace("LIMIT", "1.0"))
    assert report.verdict == "failed"
    expect(report.reasons[0], None, "'y'", *(f"[2, {int((limit < X).sum())}]" for limit in (0, 1)), "feed")
    report = held(tmp_path, found.replace("LIMIT", "99.0"), found.replace("LIMIT", "99.0"))
    assert report.verdict == "not verified"
    expect(report.not_verified[0], "nothing-compared", "'y'")


def test_strings_must_be_equal(tmp_path: Path) -> None:
    text = """(float[N,3] x) => (string[2] s, float[N,3] y) <string[2] w = {"a", "WORD"}> {
        s = Identity (w)  y = Relu (x) }"""
    assert held(tmp_path, text.replace("WORD", "b"), text.replace("WORD", "b")).passed
    assert not held(tmp_path, text.replace("WORD", "b"), text.replace("WORD", "c")).passed


def test_a_model_without_inputs(tmp_path: Path) -> None:
    report = held(tmp_path, *["() => (float[1] y) { y = Constant<value_floats = [1.0]> () }"] * 2, {})
    assert report.passed and any("samples-alike" in said for said in report.not_verified)


# --- classes ----------------------------------------------------------------------------------------------------------


def test_classes_and_a_flip_within_the_tolerance(tmp_path: Path) -> None:
    a = model(tmp_path / "a.onnx", ADDED, CLASSES, **constant(99.9, 100.5, 0))
    b = model(tmp_path / "b.onnx", ADDED, CLASSES, **constant(100.6, 100.5, 0))
    inputs = {"x": np.zeros((4, 3), np.float32)}
    passed = compare(a, a, inputs)
    assert passed.passed and passed.task == "classification" and passed.samples == 4
    assert passed.classification is not None and passed.classification["top1_agreement"] == 1.0
    report = compare(a, b, inputs, locate=False)
    assert report.outputs["y"].passed and report.verdict == "failed"
    (reason,) = report.reasons
    expect(reason, None, "label_flips", 4, 0)
    assert compare(a, b, inputs, spec=CLASSES | {"trained": False}, locate=False).verdict == "not verified"


@pytest.mark.parametrize(
    "shapes",
    [
        [(0,), (3,), (8,)],
        [(4, 2), (8,), (2, 2, 2)],
        [(2, 0), (2, 3), (2, 5)],
        [(0, 3), (2, 3)],
        [(1, 8), (8,), (), (8, 1)],
        [(2, 0)],
    ],
)
def test_outputs_of_another_size_or_rank_in_each_run(shapes: list[tuple[int, ...]], tmp_path: Path) -> None:
    text = """<ir_version: 9, opset_import: ["" : 18]> g (float[n] x, int64[k] s) => (float y) {
        e = Mul(x, f) y = Reshape<allowzero = 1>(e, s)
    }"""
    paths = []
    for name, factor in (("a", 1.5), ("b", 1.5003), ("c", 1.6)):
        model = onnx.parser.parse_model(text)
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(factor), "f"))
        model.graph.output[0].type.tensor_type.ClearField("shape")
        onnx.save(model, tmp_path / f"{name}.onnx")
        paths.append(tmp_path / f"{name}.onnx")
    draw = np.random.default_rng(29)
    feeds = [{"x": draw.normal(size=int(np.prod(s))).astype(np.float32), "s": np.array(s, np.int64)} for s in shapes]
    verdicts = [compare(paths[0], path, feeds, locate="always").verdict for path in paths]
    nothing = not any(np.prod(shape) for shape in shapes)
    assert verdicts == (["not verified"] * 3 if nothing else ["passed", "passed", "failed"])


def test_an_output_of_several_empty_rows_a_sample(tmp_path: Path) -> None:
    text = """(float[N,3] x) => (float[N,3] y, float[M,K] z) <int64[1] zero = {0}, int64[1] one = {1}> {
        y = Exp(x) n = Slice(x, zero, zero, one) z = Concat<axis = 0>(n, n)
    }"""
    assert held(tmp_path, text, text).verdict == "not verified"
