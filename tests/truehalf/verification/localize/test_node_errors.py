"""Errors of nodes alone, against NumPy."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from truehalf.verification.localize.both_files import BothFiles
from truehalf.verification.localize.node_errors import local_errors

FEEDS = {"x": np.float32([[1.1, -2.3], [0.7, 3.3]])}


def model(text: str, opset: int = 17) -> ir.Model:
    return ir.from_proto(onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : {opset}]>\n{text}'))


def compared(reference: ir.Model, candidate: ir.Model, feeds: dict[str, np.ndarray]) -> dict[str, float]:
    """Local error by tensor of the reference."""
    return {each.pair.reference: each.relative for each in local_errors(BothFiles(reference, candidate), [feeds])}


REFERENCE = """g (float[2,2] x) => (float[2,2] y)
<float[1] k = {3.0}, float[2,2] w = {1.0, 2.0, 3.0, 5.0}> { a = Mul(x, k)  b = MatMul(a, w)  y = Neg(b) }"""
HALF = """g (float[2,2] x) => (float[2,2] y)
<float16[1] k = {16896}, float16[2,2] w = {15360, 16384, 16896, 17664}>
{ h = Cast<to = 10>(x)  a = Mul(h, k)  b = MatMul(a, w)  n = Neg(b)  y = Cast<to = 1>(n) }"""


def relative(x: np.ndarray, t: np.ndarray) -> float:
    d = x.astype(np.float64) - t
    return max(np.linalg.norm(d) / np.linalg.norm(t), np.abs(d).max() / np.abs(t).max())


def test_errors_are_those_of_half_precision() -> None:
    found = compared(model(REFERENCE), model(HALF), FEEDS)
    x, w = FEEDS["x"], np.float32([[1, 2], [3, 5]])
    a, own_a = x * np.float32(3), x.astype(np.float16) * np.float16(3)
    b = a @ w
    alone_b = (a.astype(np.float16).astype(np.float32) @ w).astype(np.float16)
    assert found["a"] == pytest.approx(relative(own_a, a), rel=1e-5)
    assert found["b"] == pytest.approx(relative(alone_b, b), rel=1e-5)
    assert found["y"] == pytest.approx(relative(-b.astype(np.float16), -b), rel=1e-5)


def test_tensors_are_compared_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = compared(model(REFERENCE), model(HALF), FEEDS)
    monkeypatch.setattr("truehalf.verification.localize.node_errors._CHUNK", 16)
    assert compared(model(REFERENCE), model(HALF), FEEDS) == whole


def test_a_wrong_weight_is_an_error_of_its_own_node_alone() -> None:
    wrong = model(HALF.replace("16896, 17664}", "16896, 0}"))
    found = compared(model(REFERENCE), wrong, FEEDS)
    b = FEEDS["x"] @ (3 * np.float32([[1, 2], [3, 5]]))
    assert found["b"] == pytest.approx(relative(FEEDS["x"] @ (3 * np.float32([[1, 2], [3, 0]])), b), rel=1e-2)
    assert found["a"] < 1e-3
    assert found["y"] < 1e-3 < found["b"]


def test_an_overflow_is_the_fault_of_who_writes_it() -> None:
    found = compared(model(REFERENCE), model(HALF), {"x": np.full((2, 2), 3e4, np.float32)})
    assert found["a"] == np.inf
    assert found["b"] == np.inf  # 65504 * 4 is too much as well
    assert found["y"] == pytest.approx((240000 * 3 - 65504) / 720000, abs=0.05)


def test_masks_do_not_count() -> None:
    text = (
        """g (float[1,3] x) => (float[1,3] y) <float[1,3] m = {0.0, 0.0, -3.4e38}> { s = Add(x, m)  y = Softmax(s) }"""
    )
    half = """g (float[1,3] x) => (float[1,3] y) <float16[1,3] m = {0, 0, 64511}>
    { h = Cast<to = 10>(x)  s = Add(h, m)  p = Softmax(s)  y = Cast<to = 1>(p) }"""
    found = compared(model(text), model(half), {"x": np.float32([[0.1, 0.2, 0.3]])})
    assert 0 < found["s"] < 1e-3
    assert 0 < found["y"] < 1e-3


def test_who_gathers_other_rows_is_not_at_fault() -> None:
    """The candidate chooses other rows; behind the TopK both have those of the reference."""
    text = """g (float[4,1] x) => (float[2,1] y) <int64[1] n = {2}>
        { g = Squeeze(x)  f = Identity(g)  v, i = TopK(f, n)  r = Gather(x, i)  y = Neg(r) }"""
    other = text.replace("f = Identity(g)", "f = Neg(g)")
    found = compared(model(text), model(other), {"x": np.float32([[1], [2], [3], [4]])})
    assert found["f"] == 2 and found["r"] == 0


def test_sequences_and_weights_that_are_inputs_as_well() -> None:
    text = """g (float[4] x, float[4] w = {1.0, 1.0, 1.0, 2.0}) => (float[4] y)
    { a = Mul(x, w)  s = SplitToSequence <axis = 0, keepdims = 1> (a)  y = ConcatFromSequence <axis = 0> (s) }"""
    found = compared(model(text), model(text.replace("2.0}", "3.0}")), {"x": np.float32([0, 0, 0, 1])})
    assert found == {"a": 0.5, "y": 0}


CHOICES = """g (float[1,8] x, float[1,8] z) => (float[1,3] v, bool[1,8] b) <int64[1] k = {3}, float c = {0.5}> {
    [scores] s = Mul(x, z)
    [top] v, i = TopK(s, k)
    [above] b = Greater(s, c)
}"""
CHOICES_IN_HALF = """g (float[1,8] x, float[1,8] z) => (float[1,3] v, bool[1,8] b)
<int64[1] k = {3}, float16 c = {14336}> {
    xh = Cast<to = 10>(x)
    zh = Cast<to = 10>(z)
    [scores] s = Mul(xh, zh)
    [top] vh, i = TopK(s, k)
    v = Cast<to = 1>(vh)
    [above] b = Greater(s, c)
}"""
CLOSE = {"x": np.float32([[0.50001, 0.50002, 0.50003, 0.50004, 0.1, 0.2, 0.3, 0.4]]), "z": np.ones((1, 8), np.float32)}


@pytest.mark.parametrize(
    ("old", "new", "tensor", "is_error"),
    [
        ("TopK(s, k)", "TopK(s, k)", "i", False),
        ("Greater(s, c)", "Greater(s, c)", "b", False),
        ("TopK(s, k)", "TopK<largest = 0>(s, k)", "i", True),
        ("float16 c = {14336}", "float16 c = {13000}", "b", True),
        ("Greater(s, c)", "Less(s, c)", "b", True),
    ],
    ids=["places", "sides", "attribute", "constant", "operator"],
)
def test_another_choice_of_rounded_operands_is_no_error(old: str, new: str, tensor: str, is_error: bool) -> None:
    files = BothFiles(model(CHOICES), model(CHOICES_IN_HALF.replace(old, new)))
    error = next(each for each in local_errors(files, [CLOSE]) if each.pair.reference == tensor)
    assert error.relative > 0.05 if is_error else error.relative == 0
