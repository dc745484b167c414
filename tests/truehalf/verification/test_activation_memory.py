"""Activations alive at once, counted by hand."""

import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from truehalf.ir.normalize import InferTypes, concrete_shapes
from truehalf.verification.activation_memory import peak_bytes

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
