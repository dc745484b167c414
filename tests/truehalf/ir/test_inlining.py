"""Functions are inlined when a model is read: it computes what it did, under its names."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator
from onnxruntime import InferenceSession

from truehalf.ir.model_file import adopt_proto

HEAD = """<ir_version: 9, opset_import: ["": 18, "l": 1]> g (float[2,2] x, bool c) => (float[2,2] y)
    <float[2,2] w = {1.0, 2.0, 3.0, 4.0}>"""
F = '<domain: "l", opset_import: ["": 18]> f'
G = '<domain: "l", opset_import: ["": 18, "l": 1]> g'
TWO = F + " (a, b) => (p, q) { p = MatMul (a, b) q = Relu (p) }"
APART = F + " (a, b) => (p, q) { p = MatMul (a, b) q = Relu (a) }"
LARGEST = F + " (a) => (v, i, r) { k = Constant <value_ints = [1]> () v, i = TopK (a, k) r = Relu (a) }"
PASSED = F + " (a, b) => (a) { p = MatMul (a, b) }"
BRANCHES = "y = If (c) <then_branch = t () => (float[2,2] p) {%s}, else_branch = e () => (float[2,2] q) {%s}>"
CASES = {
    "an output is skipped that the function reads": ("{ , y = l.f (x, w) }", TWO),
    "one of the outputs of a node is skipped": ("{ , i, h = l.f (x) k = Cast <to = 1> (i) y = Add (h, k) }", LARGEST),
    "an output is skipped in a branch": ("{ " + BRANCHES % (", p = l.f (x, w)", "q = Relu (x)") + " }", TWO),
    "an output of an If is skipped": (
        "{ , y = l.f (x, c) }",
        F + " (a, c) => (p, q) { p, q = If (c) <then_branch = t () => (float[2,2] r, float[2,2] s) "
        "{ r = Neg (a) s = Relu (r) }, else_branch = e () => (float[2,2] u, float[2,2] v) "
        "{ u = Relu (a) v = Exp (u) }> }",
    ),
    "an output is skipped in a function": ("{ y = l.g (x, w) }", TWO, G + " (a, b) => (s) { , s = l.f (a, b) }"),
    "the last output is left out": ("{ y = l.f (x, w) }", TWO),
    "an input is an output": ("{ h = l.f (x, w) y = MatMul (h, w) }", PASSED),
    "an input of the graph is an output of it": ("{ y = l.f (x, w) }", PASSED),
    "an input is an output of two functions": ("{ y = l.g (x, w) }", PASSED, G + " (a, b) => (s) { s = l.f (a, b) }"),
    "an input is the output of a branch": ("{ " + BRANCHES % ("p = l.f (x, w)", "q = Relu (x)") + " }", PASSED),
    "an inner weight is called as an argument": (
        "{ y = l.f (x, w, c) }",
        F + " (a, b, c) => (y) { "
        "y = If (c) <then_branch = t () => (float[2,2] p) <float[2,2] w = {5.0, 6.0, 7.0, 8.0}> "
        "{ m = MatMul (a, b) p = MatMul (m, w) }, else_branch = e () => (float[2,2] q) { q = Relu (a) }> }",
    ),
    "an inner value is called as one of a function": (
        "{ h = l.f (x) " + BRANCHES % ("m = Neg (h) p = Relu (m)", "q = Relu (h)") + " }",
        F + " (a) => (b) { m = Exp (a) b = Neg (m) }",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_model_computes_what_it_did(case: str) -> None:
    graph, *functions = CASES[case]
    proto, again = (onnx.parser.parse_model(" ".join([HEAD, graph, *functions])) for _ in range(2))
    model = adopt_proto(again, "m.onnx")
    assert len(model.functions) == 0
    inlined = ir.to_proto(model)
    onnx.checker.check_model(inlined, full_check=True)
    for before, after in ((proto.graph.input, inlined.graph.input), (proto.graph.output, inlined.graph.output)):
        assert [value.name for value in before] == [value.name for value in after]
    for c in (True, False):
        feeds = {"x": np.array([[0.5, -1.25], [2.0, 3.25]], np.float32), "c": np.array(c)}
        InferenceSession(inlined.SerializeToString()).run(None, feeds)
        expected, got = (ReferenceEvaluator(each).run(None, feeds)[0] for each in (proto, inlined))
        np.testing.assert_array_equal(got, expected)
