"""The whole of lint: order, repeatability, what it leaves alone."""

from __future__ import annotations

import onnx_ir as ir

from tests.messages import raises
from tests.truehalf.patterns.linting import OF_TEXTS, findings, model_of
from truehalf.patterns import RULES, SEVERITIES, lint

ORDERED = """(float[N,3,8,8] x, float[N,4,4,2] g, bool[N] b, float[N] w, double[N,2] d) =>
    (float[N] y, float[N,3,4,4] z, float[A] u, float[A] v) {
    ["one"] y = Where(b, w, w)
    ["two"] z = GridSample(x, g)
    ["three"] u = Det(x)
    ["four"] f = Cast<to = 1>(d)
    ["five"] v = Det(f)
}"""


def test_errors_first_then_in_graph_order() -> None:
    got = [(finding.severity, finding.node) for finding in lint(model_of(ORDERED))]
    assert [node for severity, node in got if severity == "error"] == ["three", "five"]
    assert [severity for severity, _ in got] == sorted((severity for severity, _ in got), key=SEVERITIES.index)
    warnings = [node for severity, node in got if severity == "warning"]
    assert warnings.index("d") < warnings.index("two")  # inputs before nodes
    assert got[-1] == ("info", "one")


def test_twice_the_same_and_the_model_is_as_it_was() -> None:
    model = model_of(ORDERED)
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    assert lint(model) == lint(model)
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before


def test_every_rule_has_what_its_findings_need() -> None:
    for name, rule in RULES.items():
        assert rule.id == name and rule.severity in SEVERITIES and rule.title and rule.explanation


def test_findings_say_where_why_and_what_instead() -> None:
    for finding in findings(ORDERED):
        assert finding.message.endswith((".", ")")) and finding.remedy
        assert finding.link == f"truehalf lint --explain {finding.rule}" and finding.rule in RULES


def test_the_scope_is_that_of_the_node() -> None:
    text = '(float[4,4] x) => (float[A] y) { ["/decoder/layers.0/Det"] y = Det(x) }'
    (finding,) = lint(model_of(text))
    assert finding.scope == "decoder.layers.0"


def test_what_is_ignored_is_left_out() -> None:
    assert "grid-sample" in {finding.rule for finding in findings(ORDERED)}
    left = {finding.rule for finding in findings(ORDERED, ignore=[*OF_TEXTS, "grid-sample"])}
    assert "grid-sample" not in left and "unsupported-op" in left


def test_an_unknown_version_is_refused() -> None:
    with raises("bad-syntax", 10, 11, 11.4, "'8.6'"):
        findings(ORDERED, tensorrt="8.6")
