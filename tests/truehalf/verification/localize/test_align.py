"""Which tensor of one file is which of another."""

from __future__ import annotations

import onnx.parser
import onnx_ir as ir

from truehalf.verification.localize.both_files import align

REFERENCE = """g (float[2,4] x) => (float[2,4] y)
<float[4,4] w1 = {1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16}, float[4,4] w2 = {2,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16}>
{ a = MatMul(x, w1)  b = MatMul(x, w2)  c = Relu(a)  d = Mul(b, c)  y = Softmax(d) }"""


def model(text: str) -> ir.Model:
    return ir.from_proto(onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 17]>\n{text}'))


def test_the_same_names_are_the_same_tensors() -> None:
    assert align(model(REFERENCE), model(REFERENCE)) == {name: name for name in "xabcdy"}


def test_suffixes_of_converters_and_casts_are_passed_over() -> None:
    candidate = model(
        """g (float[2,4] x) => (float[2,4] y)
        <float16[4,4] w1 = {1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16},
         float16[4,4] w2 = {2,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16}>
        { x_cast_to_fp16 = Cast<to = 10>(x)
          a_fp16 = MatMul(x_cast_to_fp16, w1)  b = MatMul(x_cast_to_fp16, w2)
          c_output_cast0 = Relu(a_fp16)  d_cast_to_fp16 = Mul(b, c_output_cast0)
          z = Softmax(d_cast_to_fp16)  y = Cast<to = 1>(z) }"""
    )
    found = align(model(REFERENCE), candidate)
    expected = {"x": "x", "a": "a_fp16", "b": "b", "c": "c_output_cast0", "d": "d_cast_to_fp16", "y": "y"}
    assert found == expected


RENAMED = """g (float[2,4] x) => (float[2,4] y)
<float[4,4] k1 = {2,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16}, float[4,4] k2 = {1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16}>
{ h = Cast<to = 10>(x)  h1 = Cast<to = 10>(k1)  h2 = Cast<to = 10>(k2)
  t1 = MatMul(h, h1)  t2 = MatMul(h, h2)  t3 = Relu(t2)  t4 = Mul(t3, t1)  t5 = Softmax(t4)  y = Cast<to = 1>(t5) }"""


def test_renamed_tensors_are_found_by_structure_and_weights() -> None:
    """The two products are in the other order, and so are the factors of the Mul."""
    expected = {"x": "x", "a": "t2", "b": "t1", "c": "t3", "d": "t4", "y": "y"}
    assert align(model(REFERENCE), model(RENAMED)) == expected


def test_names_that_mean_something_else_are_not_believed() -> None:
    """A tool that numbers anew: `a` to `d` are there, and are other tensors."""
    shuffled = RENAMED
    for old, new in (("t1", "d"), ("t2", "c"), ("t3", "a"), ("t4", "b")):
        shuffled = shuffled.replace(old, new)
    expected = {"x": "x", "a": "c", "b": "d", "c": "a", "d": "b", "y": "y"}
    assert align(model(REFERENCE), model(shuffled)) == expected


def test_what_feeds_an_aligned_node_is_aligned_backwards() -> None:
    """The first product reads another thing than in the reference, so nothing but its reader tells which it is."""
    other = """g (float[2,4] x) => (float[2,4] y)
    <float[4,4] w1 = {1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16}, float[4,4] w2 = {2,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16}>
    { extra = Neg(x)  t = MatMul(extra, w1)  b = MatMul(x, w2)  c = Relu(t)  d = Mul(b, c)  y = Softmax(d) }"""
    assert align(model(REFERENCE), model(other))["a"] == "t"


def test_shapes_that_differ_are_not_aligned() -> None:
    reference = model("g (float[2,4] x) => (float[2,4] y) { a = Relu(x)  y = Neg(a) }")
    candidate = model(
        """g (float[2,4] x) => (float[2,4] y) <float[1,2,4] a>
        { a = Unsqueeze(x, k)  b = Relu(x)  y = Neg(b) }""".replace("<float", "<int64[1] k = {0}, float")
    )
    assert align(reference, candidate) == {"x": "x", "a": "b", "y": "y"}
