"""Activations alive at once, counted by hand; and batches, as large as the memory that they are given allows."""

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from tests.messages import expect
from truehalf.data.samples import Sample
from truehalf.ir.normalize import InferTypes, concrete_shapes
from truehalf.verification.activation_memory import activations_gb, fitting_batch, peak_bytes, too_large

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'


def peak(text: str, batch: int = 1) -> int:
    model = ir.from_proto(onnx.parser.parse_model(f"{HEAD} {text}"))
    InferTypes()(model)
    shapes = {str(value.name): [batch, *list(value.shape)[1:]] for value in model.graph.inputs}
    return peak_bytes(model, concrete_shapes(model, shapes))


CASES = {
    "a chain holds two tensors": ("g (float[N,10] x) => (float[N,10] y) { a = Relu (x) b = Relu (a) y = Relu (b) }", 2),
    "what is needed later stays": (
        "g (float[N,10] x) => (float[N,10] y) { a = Relu (x) b = Relu (a) c = Relu (b) y = Add (x, c) }",
        3,
    ),
    "a view is no copy": (
        "g (float[N,10] x) => (float[N,5,2] y) <int64[3] s = {-1, 5, 2}> { a = Reshape (x, s) y = Relu (a) }",
        2,
    ),
    "a view keeps what it shows": (
        "g (float[N,10] x) => (float[N,5,2] y) <int64[3] s = {-1, 5, 2}> "
        "{ a = Relu (x) v = Reshape (a, s) b = Relu (v) c = Relu (b) y = Add (v, c) }",
        3,
    ),
    "an output is kept, one that nobody reads is not": (
        "g (float[N,10] x) => (float[N,10] y, float[N,10] z) "
        "{ y = Relu (x) unread = Relu (x) a = Relu (x) z = Relu (a) }",
        3,
    ),
    "weights do not count": (
        "g (float[N,10] x) => (float[N,10] y) <float[10] w = {0,0,0,0,0,0,0,0,0,0}> { y = Add (x, w) }",
        2,
    ),
    "a body's reads are its owner's": (
        "g (float[N,10] x, bool[1] c) => (float[N,10] y) { a = Relu (x) "
        "y = If (c) <then_branch = t () => (float[N,10] p) { p = Relu (a) }, "
        "else_branch = e () => (float[N,10] q) { q = Neg (a) }> }",
        2,
    ),
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.replace(" ", "-"))
def test_the_most_that_is_alive(case: str) -> None:
    text, tensors = CASES[case]
    for batch in (1, 7):
        small = batch if "bool[1] c" in text else 0  # the condition, one byte in each row
        assert peak(text, batch) == tensors * 10 * 4 * batch + small


def test_float16_is_computed_in_float32() -> None:
    text = "g (float16[N,10] x) => (float16[N,10] y) { y = Relu (x) }"
    assert peak(text) == 2 * 10 * 4


# --- batches ----------------------------------------------------------------------------------------------------------

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[N,C,H,W] x) => (float[N,C,H,W] y) { y = Relu (x) }"""
MODEL = ir.from_proto(onnx.parser.parse_model(TEXT))
ONE: Sample = Sample(
    "one", {"x": np.zeros((3, 100, 100), np.float32)}, None, None
)  # 120 kB, and as much for what comes out
GB = 240e3 / 1e9


def test_activations_are_those_of_samples_like_the_one_given() -> None:
    assert activations_gb(MODEL, ONE, 1) == GB and activations_gb(MODEL, ONE, 8) == 8 * GB


def test_samples_run_in_batches_of_half_the_memory_and_never_of_none() -> None:
    assert fitting_batch(MODEL, ONE, 25, 1.0) == 25
    assert fitting_batch(MODEL, ONE, 25, 2 * 10.5 * GB) == 10
    assert fitting_batch(MODEL, ONE, 25, GB / 100) == 1


def test_a_size_that_must_be_looked_at_has_all_of_it_and_is_said_to_be_too_large_beyond() -> None:
    assert too_large(MODEL, ONE, 8, 8.1 * GB) is None
    expect(str(too_large(MODEL, ONE, 8, 7.9 * GB)), None, "0.0 GB", f"verify.memory_gb ({7.9 * GB:g})")
    assert too_large(MODEL, ONE, 1, GB / 100) is None, "one sample is run all the same"
