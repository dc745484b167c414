"""Operators that TensorRT does not have."""

from __future__ import annotations

import onnx
import pytest

from tests.messages import expect
from tests.truehalf.patterns.linting import OF_TEXTS, found, model_of, only
from truehalf.ir.model_forms import as_ir
from truehalf.patterns import lint


@pytest.mark.parametrize(
    ("body", "opset", "rule"),
    [
        ("y = Det(x)", 17, "unsupported-op"),
        ("y, i, j, k = Unique(x)", 17, "unique"),
        ("s = SequenceConstruct(x, x) y = ConcatFromSequence<axis = 0>(s)", 17, "sequence-ops"),
        ("s = SplitToSequence(x) y = SequenceAt(s, zero)", 17, "sequence-ops"),
        ("o = Optional(x) y = OptionalGetElement(o)", 17, "sequence-ops"),
    ],
)
def test_what_no_version_has(body: str, opset: int, rule: str) -> None:
    rules = found(f"(float[4,4] x) => (float[A,B] y) <int64 zero = {{0}}> {{ {body} }}", opset)
    assert set(rules) == {("error", rule)}


SWISH = "(float[N] x) => (float[N] y) { y = Swish(x) }"


def test_the_versions_that_lack_it_are_named() -> None:
    finding = only(SWISH, 24)
    expect(finding.message, None, 10.16, "Swish", "11.0")
    assert "11.4" not in finding.message  # which has it
    assert found(SWISH, 24, tensorrt="11") == []
    det = only("(float[4,4] x) => (float[A] y) { y = Det(x) }")
    expect(det.message, None, 10.16, 11.4, "Det")
    assert "11.0" not in det.message  # no version has it


def test_opsets() -> None:
    relu = "(float[N] x) => (float[N] y) { y = Relu(x) }"
    assert found(relu, 24) == []
    assert found(relu, 25) == [("warning", "unsupported-op")]
    assert found(relu, 25, tensorrt="11.5") == []
    assert found(relu, 22, tensorrt="10.3") == [("warning", "unsupported-op")]
    assert found(relu, 8) == [("error", "unsupported-op")]


CUSTOM = "(float[N] x) => (float[N] y) { y = com.acme.Fast(x) }"


def test_other_domains_need_a_plugin() -> None:
    imports = ', "com.acme": 1'
    finding = only(CUSTOM, imports=imports)
    assert (finding.rule, finding.severity) == ("unsupported-op", "error")
    expect(finding.message, None, "com.acme::Fast")
    expect(finding.remedy, None, "engine.plugins", "--plugin-ops")
    for plugin in ("Fast", "com.acme::Fast"):
        assert found(CUSTOM, imports=imports, plugin_ops=[plugin]) == []
    assert found(CUSTOM, imports=imports, plugin_ops=["Slow"]) == [("error", "unsupported-op")]


@pytest.mark.parametrize("name", ["EfficientNMS_TRT", "TRT_FP8QuantizeLinear"])
def test_what_ships_with_tensorrt_is_no_finding(name: str) -> None:
    assert found(CUSTOM.replace("Fast", name), imports=', "com.acme": 1') == []
    assert found(CUSTOM.replace("com.acme.Fast", name)) == []  # plugins are often exported to the default domain


def test_functions_of_the_file_are_looked_into() -> None:
    proto = onnx.parser.parse_model("""
    <ir_version: 10, opset_import: ["": 17, "ours": 1]>
    g (float[4,4] x) => (float y) { y = ours.Area(x) }
    <domain: "ours", opset_import: ["": 17]>
    Area (a) => (b) { d = Det(a) b = Abs(d) }
    """)
    findings = lint(as_ir(proto), ignore=OF_TEXTS)
    assert [(finding.rule, finding.op_type) for finding in findings] == [("unsupported-op", "Det")]


def test_an_operator_of_a_body() -> None:
    text = """(float[4,4] x, bool c) => (float[A] y) {
        y = If(c) <then_branch = t () => (float[A] a) { a = Det(x) }, else_branch = e () => (float[B] b) { b = Det(x) }>
    }"""
    assert found(text) == [("error", "unsupported-op")] * 2 + [("warning", "data-dependent-if")]


def test_a_plugin_may_stand_for_an_operator_of_onnx() -> None:
    model = model_of("(float[4,4] x) => (float[A] y) { y = Det(x) }")
    assert lint(model, ignore=OF_TEXTS, plugin_ops=["Det"]) == []
