"""Nodes that lack what their operator has to have."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info

from tests.messages import raises
from tests.truehalf.patterns.linting import model_of
from truehalf.patterns import lint

OPERATORS = ["Slice", "TopK", "NonZero", "If", "Resize", "Where", "Cast", "Loop", "LayerNormalization", "Concat"]


def model(*nodes: onnx.NodeProto) -> ir.Model:
    x, y = (make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in "xy")
    return ir.from_proto(make_model(make_graph(nodes, "g", [x], [y]), opset_imports=[make_opsetid("", 17)]))


@pytest.mark.parametrize("op_type", OPERATORS)
def test_a_node_without_inputs_is_named(op_type: str) -> None:
    schema = onnx.defs.get_schema(op_type, 17)
    with raises("model-invalid", "'head'", op_type, schema.min_input, 0, "opset 17"):
        lint(model(make_node(op_type, [], ["y"], name="head")))


def test_an_input_that_may_not_be_left_out() -> None:
    with raises("model-invalid", "'Where_y'", "Where", 3, 2):
        lint(model(make_node("Where", ["x", "", "x"], ["y"])))


def test_an_output_that_is_not_there() -> None:
    with raises("model-invalid", "'sort'", "TopK", 2, 1):
        lint(model(make_node("TopK", ["x", "x"], ["y"], name="sort")))


def test_optional_inputs_may_be_left_out() -> None:
    text = """(float[N,4] x) => (float[N,4] y) <bool on = {1}, float high = {6.0}> {
        z = Loop("", on, x) <body = l (int64 i, bool c, float[N,4] a) => (bool c, float[N,4] b) { b = Relu(a) }>
        y = Clip(z, "", high)
    }"""
    assert "data-dependent-loop" not in {finding.rule for finding in lint(model_of(text))}


def test_operators_of_plugins_have_their_own_rules() -> None:
    odd = model(make_node("Slice", ["x"], ["y"]))
    assert lint(odd, plugin_ops=["Slice"], ignore=["empty-node-name", "deployment-io"]) == []
    assert [finding.rule for finding in lint(model(make_node("Odd", [], ["y"])), ignore=["deployment-io"])] == [
        "unsupported-op", "baked-item", "empty-node-name",
    ]  # fmt: skip
