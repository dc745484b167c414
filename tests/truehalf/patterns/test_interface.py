"""Inputs, outputs and names."""

from __future__ import annotations

import pytest

from tests.messages import expect
from tests.truehalf.patterns.linting import model_of
from truehalf.patterns import Finding, lint

NAMELESS = ["empty-node-name"]


def of(text: str, *rules: str, **options: object) -> list[Finding]:
    findings = lint(model_of(text), ignore=NAMELESS, **options)  # type: ignore[arg-type]
    return [finding for finding in findings if not rules or finding.rule in rules]


# --- deployment-io ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inputs", "outputs", "severity", "word"),
    [
        ("uint16[N,3] x", "uint16[N,3] y", "error", "UINT16"),
        ("string[N] x", "string[N] y", "error", "STRING"),
        ("bool[N,3] x", "bool[N,3] y", "warning", "DeepStream"),
        ("uint8[N,3] x", "uint8[N,3] y", "warning", "DeepStream"),
        ("bfloat16[N,3] x", "bfloat16[N,3] y", "warning", "DeepStream"),
        ("float8e4m3fn[N,3] x", "float8e4m3fn[N,3] y", "warning", "Triton"),
        ("int64[N,3] x", "int64[N,3] y", "info", "DeepStream"),
        ("double[N,3] x", "double[N,3] y", "warning", "float64"),
        ("float x", "float y", "warning", "scalar"),
    ],
)
def test_types_and_scalars(inputs: str, outputs: str, severity: str, word: str) -> None:
    findings = of(f"({inputs}) => ({outputs}) {{ y = Identity(x) }}", "deployment-io")
    assert [(finding.severity, finding.node) for finding in findings] == [(severity, "x"), (severity, "y")]
    for finding in findings:
        expect(finding.message, None, word)


@pytest.mark.parametrize("dtype", ["float", "float16", "int32", "int8"])
def test_what_can_be_bound(dtype: str) -> None:
    assert of(f"({dtype}[N,3] x) => ({dtype}[N,3] y) {{ y = Identity(x) }}") == []


def test_the_way_out_is_one() -> None:
    """What the remedy names is no finding itself."""
    for dtype in ("bool", "uint8", "int64", "bfloat16", "float8e4m3fn"):
        finding, _ = of(f"({dtype}[N,3] x) => ({dtype}[N,3] y) {{ y = Identity(x) }}", "deployment-io")
        assert "uint8" not in finding.remedy and "int64" not in finding.remedy
        assert "float32" in finding.remedy


def test_a_sequence() -> None:
    (finding,) = of("(float[N] x) => (seq(float[N]) y) { y = SequenceConstruct(x) }", "deployment-io")
    assert (finding.severity, finding.node) == ("error", "y")
    expect(finding.message, None, "output", "tensor")


@pytest.mark.parametrize(("name", "faulty"), [("a:0", True), ("a,b", True), ("input.1", False), ("/head/boxes", False)])
def test_names(name: str, faulty: bool) -> None:
    model = model_of("(float[N,3] x) => (float[N,3] y) { y = Identity(x) }")
    model.graph.inputs[0].name = name
    assert [finding.node for finding in lint(model, ignore=NAMELESS)] == [name] * faulty


# --- baked-item -------------------------------------------------------------------------------------------------------


def test_an_input_that_nothing_reads() -> None:
    (finding,) = of("(float[N,3] x, float[1] scale) => (float[N,3] y) { y = Relu(x) }")
    assert (finding.rule, finding.severity, finding.node) == ("baked-item", "warning", "scale")


def test_an_input_that_the_exporter_dropped() -> None:
    text = "(float[N,3] x) => (float[N,3] y) { y = Relu(x) }"
    (finding,) = of(text, inputs=["x", "scale"])
    assert (finding.rule, finding.node) == ("baked-item", "scale")
    assert of(text, inputs=["x"]) == []


def test_an_input_that_a_body_reads() -> None:
    text = """(float[N,3] x, float[N,3] w, bool[1] c) => (float[N,3] y) {
        y = If(c) <then_branch = t () => (float[N,3] a) { a = Add(x, w) },
            else_branch = e () => (float[N,3] b) { b = Relu(x) }>
    }"""
    assert of(text, "baked-item") == []


# --- empty-node-name --------------------------------------------------------------------------------------------------


def test_nodes_without_a_name_of_their_own_are_one_finding() -> None:
    text = '(float[N] x) => (float[N] y) { ["a"] p = Relu(x) q = Neg(p) ["a"] y = Abs(q) }'
    (finding,) = lint(model_of(text))
    assert (finding.rule, finding.severity, finding.count, finding.node) == ("empty-node-name", "info", 2, "Neg_q")
    expect(finding.message, None, 2, "'Neg_q'")


def test_one_node_without_a_name() -> None:
    (finding,) = lint(model_of('(float[N] x) => (float[N] y) { ["a"] p = Relu(x) y = Abs(p) }'))
    assert (finding.rule, finding.count, finding.node) == ("empty-node-name", 1, "Abs_y")
    expect(finding.message, None, 1, "'Abs_y'")


def test_named_nodes_are_no_finding() -> None:
    assert lint(model_of('(float[N] x) => (float[N] y) { ["a"] p = Relu(x) ["b"] y = Abs(p) }')) == []
