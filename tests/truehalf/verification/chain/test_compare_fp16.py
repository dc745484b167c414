"""Candidates that hold FP16: how they run, and where they go wrong."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.messages import expect
from tests.truehalf.verification.two_models import OVERFLOW, PLAIN, SAME, X, held, model, options
from truehalf.codes import codes_in
from truehalf.config.verification import Evaluation
from truehalf.errors import StageError
from truehalf.verification.chain.compare import compare
from truehalf.verification.localize.locate import Place


def test_overflow_fails_and_is_located_on_the_worst_sample(tmp_path: Path) -> None:
    feeds = [{"x": X * 0.1}, {"x": np.full((1, 3), 60000, np.float32)}, {"x": X * 0.2}]
    report = held(tmp_path, SAME, OVERFLOW, feeds, locate=True)
    assert report.verdict == "failed" and report.evaluation == "emulated-fp16" and report.worst_sample == "feed[1]"
    assert report.outputs["y"].inf == report.outputs["y"].nonfinite_new == 3
    assert report.place is not None and report.place.sample == "feed[1]" and report.first_bad_node == "amplify"
    assert held(tmp_path, SAME, OVERFLOW, feeds[0], locate=True).place is None
    always = held(tmp_path, SAME, OVERFLOW, feeds[0], locate="always")
    assert always.passed and always.place is not None


def test_a_search_that_fails_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = StageError("not-comparable", "x")

    def place_of(*_: Any) -> Place:
        raise error

    monkeypatch.setattr("truehalf.verification.chain.compare.place_of", place_of)
    report = held(tmp_path, PLAIN, PLAIN.replace("Relu", "Neg"), locate=True)
    assert report.verdict == "failed" and report.first_bad_node is None
    assert [item for item in report.not_verified if str(error) in item]


def test_what_emulation_does_not_say_is_said(tmp_path: Path) -> None:
    report = held(tmp_path, SAME, OVERFLOW, {"x": X})
    assert report.passed and "sums-not-rounded" in codes_in("\n".join(report.not_verified))
    report = held(tmp_path, OVERFLOW, OVERFLOW, {"x": X})
    assert report.passed and report.reference_evaluation == "emulated-fp16"
    (said,) = [item for item in report.not_verified if "FP16" in item and "reference" in item]
    expect(said, None, "FP32")


def test_a_file_that_passed_has_no_bad_node_but_where_rounding_does_not_explain_it(tmp_path: Path) -> None:
    exp = "(float[4] x) => (float[4] y) { y = Exp (x) }"
    x = {"x": np.full(4, 0.3, np.float32)}
    report = held(tmp_path, exp, exp.replace("float[", "float16["), x, locate="always")
    assert report.passed and report.suspects and report.first_bad_node is None
    wrong = "(float[N,3] x) => (float[N,3] y) { [first] y = Abs (x) }"
    report = held(tmp_path, wrong, wrong.replace("Abs", "Relu"), {"x": X}, tolerance=1.0, locate="always")
    assert report.passed and report.first_bad_node == "first"


def test_the_search_rounds_as_the_run_that_failed_did(tmp_path: Path) -> None:
    """600 added up 128 times and taken away again: a partial sum overflows, the sum does not."""
    total = "(float[1,256] x) => (float[1,1] y) { [total] y = ReduceSum <keepdims = 1> (x, axes) }"
    half, axes = total.replace("float[", "float16["), np.array([1])
    x = {"x": np.repeat(np.array([[600, -600]], np.float32), 128, axis=1)}
    files = model(tmp_path / "fp32.onnx", total, axes=axes), model(tmp_path / "half.onnx", half, axes=axes)
    assert compare(*files, x).passed
    report = compare(*files, x, options=options(evaluation=Evaluation.emulated_fp16_pessimistic))
    assert report.verdict == "failed" and report.first_bad_node == "total"


def test_sums_that_a_pessimistic_run_does_not_round_are_said(tmp_path: Path) -> None:
    pool = "(float[2,3,1,1] x) => (float[2,3,1,1] y) { [p] y = AveragePool <kernel_shape = [1, 1], ceil_mode = 1> (x) }"
    x = {"x": X[:2].reshape(2, 3, 1, 1)}
    for evaluation, said in ((Evaluation.emulated_fp16_pessimistic, True), (Evaluation.emulated_fp16, False)):
        report = held(tmp_path, pool, pool.replace("float[", "float16["), x, evaluation=evaluation)
        assert report.passed
        listed = [item for item in report.not_verified if "(p: " in item]
        assert len(listed) == said
        for item in listed:
            expect(item, "sums-not-rounded", 1)


TAKEN = (
    "(float[N,3] x) => (float[N,3] y) { k = Constant <value_float = 0.00001> () [scale] a = Mul (x, k) y = Tanh (a) }"
)
TAKEN_HALF = """(float16[N,3] x) => (float[N,3] y) { k = Constant <value_float = 0.00001> () h = Cast <to = 10> (k)
    [scale] a = Mul (x, h) b = Tanh (a) y = Cast <to = 1> (b) }"""


def test_inputs_beyond_float16_are_named_before_any_node(tmp_path: Path) -> None:
    large = {"x": np.full((4, 3), 7e4, np.float32)}
    report = held(tmp_path, TAKEN, TAKEN_HALF, large, locate=True)
    assert report.verdict == "failed" and report.first_bad_node is None and report.suspects == []
    expect(report.reasons[0], None, "input 'x'", "7e+04", 65504, "float16")
    (said,) = [line for line in report.not_verified if "not-searched" in codes_in(line)]
    expect(said, None, "'x'")
    assert held(tmp_path, TAKEN, TAKEN_HALF, large, locate="always").first_bad_node == "scale"
    for value in (65504, 65519, -np.inf):  # what rounds to 65504, and what is no number before
        fits = held(tmp_path, TAKEN, TAKEN_HALF, {"x": np.full((4, 3), value, np.float32)}, tolerance=0.1)
        assert fits.passed and not any("65504" in line for line in fits.not_verified)


def test_inputs_beyond_float16_that_change_nothing_are_said(tmp_path: Path) -> None:
    saturated = TAKEN.replace("0.00001", "1.0"), TAKEN_HALF.replace("0.00001", "1.0")
    report = held(tmp_path, *saturated, {"x": np.full((4, 3), 7e4, np.float32)})
    assert report.passed
    (said,) = [line for line in report.not_verified if "65504" in line]
    expect(said, None, "input 'x'", "7e+04")


def test_another_sample_than_that_with_the_large_input_is_searched(tmp_path: Path) -> None:
    """The first sample saturates, the second meets a wrong node."""
    wrong = TAKEN_HALF.replace("0.00001", "1.0").replace("b = Tanh", "[wrong] b = Neg")
    feeds = [{"x": np.full((1, 3), 7e4, np.float32)}, {"x": np.full((1, 3), -1, np.float32)}]
    report = held(tmp_path, TAKEN.replace("0.00001", "1.0"), wrong.replace("Neg (a)", "Sign (a)"), feeds, locate=True)
    assert report.worst_sample == "feed[1]" and report.first_bad_node == "wrong"
    expect(report.reasons[0], None, "input 'x'", "7e+04", 65504)
