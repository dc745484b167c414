"""Operators of plugins: those that are named, and what is assumed where none is."""

from __future__ import annotations

import onnx.parser
import onnx_ir as ir
import pytest

from tests.messages import raises
from truehalf.config.schema import FailOn, LintConfig
from truehalf.patterns.operators import ops_of_plugins
from truehalf.patterns.report import lint_of_trace


def graph() -> ir.Model:
    text = """<ir_version: 8, opset_import: ["" : 17, "com.acme" : 1]> g (float[4] x) => (float[4] y)
        { a = com.acme.Mine(x)  y = Relu(a) }"""
    return ir.from_proto(onnx.parser.parse_model(text))


@pytest.mark.parametrize(
    ("plugins", "named", "expected"),
    [([], [], ([], False)), (["a.so"], [], (["com.acme::Mine"], True)), (["a.so"], ["Other"], (["Other"], False))],
)
def test_what_is_named_goes_before_what_is_assumed(
    plugins: list[str], named: list[str], expected: tuple[list[str], bool]
) -> None:
    assert ops_of_plugins(graph(), plugins, named) == expected


def test_trace_knows_the_operators_of_plugins() -> None:
    """engine.plugins is what the finding asks for: then there is none."""
    with raises("lint-fails", "lint.fail_on", "unsupported-op", "com.acme::Mine"):
        lint_of_trace(graph(), LintConfig(["empty-node-name"], FailOn.error), [], [])
    for named in (["Mine"], ["com.acme::Mine"]):
        ops, _ = ops_of_plugins(graph(), ["a.so"], named)
        assert lint_of_trace(graph(), LintConfig(fail_on=FailOn.error), ops, [])["counts"]["error"] == 0
