"""Functions of a file are looked into with what their calls hand them."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from tests.messages import expect
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
    model = ir.from_proto(onnx.parser.parse_model(f"{IMPORTS} g {graph} {' '.join(functions)}"))
    InferTypes()(model)
    return lint(model, **({"ignore": ["empty-node-name", "deployment-io"]} | options))  # type: ignore[arg-type]


def test_constants_of_a_function_are_constants() -> None:
    assert of('(float[N,8] x) => (float[N,1,2] y) { ["head"] y = f.Inner(x) }', INNER) == []


CUT = """<domain: "f", opset_import: ["": 17]> Cut (a, end) => (b) {
    starts = Constant<value_ints = [0]>() ["/cut"] b = Slice(a, starts, end)
}"""
OUTER = '<domain: "f", opset_import: ["": 17, "f": 1]> Outer (a, end) => (b) { ["block"] b = f.Cut(a, end) }'


def test_the_call_decides_what_is_known_and_names_lead_to_it() -> None:
    graph = """(float[N,8] x, int64[M] n) => (float[A,8] y, float[B,8] z, float[C,8] w) <int64[1] two = {2}> {
        ["size"] y = f.Cut(x, two)  e = ReduceMax(n)  ["data"] z = f.Cut(x, e)  ["outer"] w = f.Outer(x, e)
    }"""
    findings = of(graph, CUT, OUTER)
    assert [(finding.rule, finding.node) for finding in findings] == [
        ("dynamic-slice", "data/cut"),
        ("dynamic-slice", "outer/block/cut"),
    ]
    assert findings[1].scope == "outer.block"


def test_a_call_without_a_name() -> None:
    graph = "(float[N,8] x, int64[1] n) => (float[A,8] y) { e = Abs(n) f = ReduceMax(n) y = f.Cut(x, e) }"
    assert [finding.node for finding in of(graph, CUT)] == ["Cut_y/cut"]


DET = '<domain: "f", opset_import: ["": 17]> Area (a) => (b) { ["det"] b = Det(a) }'


def test_functions_that_are_not_called_are_no_finding() -> None:
    assert of('(float[4,4] x) => (float[4,4] y) { ["r"] y = Relu(x) }', DET) == []


def test_a_plugin_stands_for_a_function_of_its_name() -> None:
    graph = '(float[4,4] x) => (float y) { ["a"] y = f.Area(x) }'
    assert [finding.node for finding in of(graph, DET, ignore=["deployment-io"])] == ["a/det"]
    for plugin in ("Area", "f::Area"):
        assert of(graph, DET, plugin_ops=[plugin], ignore=["deployment-io"]) == []


def test_another_opset_in_a_function() -> None:
    old = INNER.replace('"": 17', '"": 13')
    assert of('(float[N,8] x) => (float[N,1,2] y) { ["head"] y = f.Inner(x) }', old) == []


def test_functions_that_call_each_other_are_said_to_be_unread() -> None:
    ring = [f'<domain: "f", opset_import: ["": 17, "f": 1]> {a} (x) => (y) {{ y = f.{b}(x) }}' for a, b in ("PQ", "QP")]
    graph = 'g (float[N,8] x) => (float[N,8] y) { ["head"] y = f.P(x) }'
    (finding,) = lint(ir.from_proto(onnx.parser.parse_model(" ".join([IMPORTS, graph, *ring]))))
    assert (finding.rule, finding.severity, finding.node) == ("unsupported-op", "warning", "")
    expect(finding.message, None, "P, Q")


def test_the_model_stays_as_it_was() -> None:
    model = ir.from_proto(
        onnx.parser.parse_model(f'{IMPORTS} g (float[N,8] x) => (float[N,1,2] y) {{ ["head"] y = f.Inner(x) }} {INNER}')
    )
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    assert lint(model) == lint(model)
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before
