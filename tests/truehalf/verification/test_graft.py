"""A model with tensors given from outside and others shown."""

from __future__ import annotations

import numpy as np
import onnx.parser
import onnx_ir as ir

from truehalf.verification.graft import Graft

X = {"x": np.float32([[1.5, -2.0], [0.25, 4.0]])}
CHAIN = """g (float[2,2] x) => (float[2,2] y) <float[1] k = {3.0}>
{ a = Mul(x, k)  b = Neg(a)  y = Add(a, b) }"""
HALF = """g (float[2,2] x) => (float[2,2] y) <float16[1] k = {16896}>
{ h = Cast<to = 10>(x)  a = Mul(h, k)  b = Neg(a)  s = Add(a, b)  y = Cast<to = 1>(s) }"""


def model(text: str, opset: int = 17) -> ir.Model:
    return ir.from_proto(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> {text}'))


def test_readers_read_what_is_given_and_the_computed_value_is_shown() -> None:
    shown = Graft(model(CHAIN), ["a", "b", "y"], ["a"]).run({**X, "a": np.ones((2, 2), np.float32)})
    assert shown["a"].tolist() == (X["x"] * 3).tolist()
    assert shown["b"].tolist() == [[-1, -1], [-1, -1]] and shown["y"].tolist() == [[0, 0], [0, 0]]


def test_what_is_given_is_rounded_and_cut_as_float16_holds_it() -> None:
    graft = Graft(model(HALF), ["b", "a"], ["a"])
    shown = graft.run({**X, "a": np.float32([[1e6, 1 + 2**-12], [-1e6, 2]])})
    assert shown["b"].tolist() == [[-65504, -1], [65504, -2]]
    assert shown["a"].tolist() == (X["x"] * 3).tolist()


def test_a_tensor_inside_a_body_reads_what_is_given() -> None:
    text = """g (float[2,2] x, bool c) => (float[2,2] y) { a = Neg(x)
        y = If(c) <then_branch = t () => (float[2,2] o) { o = Mul(a, x) },
                   else_branch = e () => (float[2,2] p) { p = Identity(a) }> }"""
    given = {"a": np.full((2, 2), 2, np.float32)}
    assert (
        Graft(model(text), ["y"], ["a"]).run({**X, "c": np.array(True), **given})["y"].tolist() == (2 * X["x"]).tolist()
    )


def test_inputs_and_weights_may_be_given_and_inputs_shown() -> None:
    graft = Graft(model(CHAIN), ["x", "a"], ["k"])
    assert graft.run({**X, "k": np.float32([2])})["a"].tolist() == (X["x"] * 2).tolist()
    assert Graft(model(CHAIN), ["a"], ["x"]).run({**X, "x": np.ones((2, 2), np.float32)})["a"].tolist() == [[3, 3]] * 2
