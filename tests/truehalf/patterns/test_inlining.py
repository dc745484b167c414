"""Functions of a file are looked into with what their calls hand them."""

from __future__ import annotations

import onnx

from truehalf.ir.model_forms import as_ir
from truehalf.ir.normalize import InferTypes
from truehalf.patterns import Finding, lint

IMPORTS = '<ir_version: 10, opset_import: ["": 17, "f": 1]>'
INNER = """<domain: "f", opset_import: ["": 17]> Inner (a) => (b) {
    starts = Constant<value_ints = [0]>() ends = Constant<value_ints = [2]>() axes = Constant<value_ints = [1]>()
    ["cut"] few = Slice(a, starts, ends, axes)
    k = Constant<value_ints = [2]>()
    ["best"] best, index = TopK(few, k)
    ["more"] b = Unsqueeze(best, axes)
}"""


def of(graph: str, *functions: str, **options: object) -> list[Finding]:
    model = as_ir(onnx.parser.parse_model(f"{IMPORTS} g {graph} {' '.join(functions)}"))
    InferTypes()(model)
    return lint(model, **({"ignore": ["empty-node-name", "deployment-io"]} | options))  # type: ignore[arg-type]


def test_constants_of_a_function_are_constants() -> None:
    assert of('(float[N,8] x) => (float[N,1,2] y) { ["head"] y = f.Inner(x) }', INNER) == []


CUT = """<domain: "f", opset_import: ["": 17]> Cut (a, end) => (b) {
    starts = Constant<value_ints = [0]>() ["/cut"] b = Slice(a, starts, end)
}"""
OUTER = '<domain: "f", opset_import: ["": 17, "f": 1]> Outer (a, end) => (b) { ["block"] b = f.Cut(a, end) }'


def test_the_call_decides_what_is_known() -> None:
    graph = """(float[N,8] x, int64[M] n) => (float[A,8] y, float[B,8] z, float[C,8] w) <int64[1] two = {2}> {
        ["size"] y = f.Cut(x, two)  e = ReduceMax(n)  ["data"] z = f.Cut(x, e)  ["outer"] w = f.Outer(x, e)
    }"""
    assert [finding.rule for finding in of(graph, CUT, OUTER)] == ["dynamic-slice"] * 2


DET = '<domain: "f", opset_import: ["": 17]> Area (a) => (b) { ["det"] b = Det(a) }'


def test_functions_that_are_not_called_are_no_finding() -> None:
    assert of('(float[4,4] x) => (float[4,4] y) { ["r"] y = Relu(x) }', DET) == []


def test_another_opset_in_a_function() -> None:
    old = INNER.replace('"": 17', '"": 13')
    assert of('(float[N,8] x) => (float[N,1,2] y) { ["head"] y = f.Inner(x) }', old) == []
