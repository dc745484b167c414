"""One node replaced by others, and nothing around it notices."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir

from tests.truehalf.patterns.repairing import parsed, run, uniform
from truehalf.ir.normalize import InferTypes
from truehalf.ir.passes import Done
from truehalf.patterns.rewrite import Writer


def opened(text: str) -> ir.Model:
    model = ir.from_proto(parsed(text))
    InferTypes()(model)
    return model


def written(model: ir.Model) -> onnx.ModelProto:
    proto = ir.to_proto(model)
    onnx.checker.check_model(proto, full_check=True)
    return proto


def node_of(model: ir.Model, op_type: str) -> ir.Node:
    return next(node for node in model.graph if node.op_type == op_type)


def test_the_new_value_takes_name_place_scope_and_metadata() -> None:
    model = opened("net (float[3] x) => (float[3] y) { a = Softplus (x)  y = Neg (a) }")
    old, writer = node_of(model, "Softplus"), Writer(model, Done(model, False))
    old.metadata_props["pkg.torch.onnx.name_scopes"] = "['', 'block', 'block.0', 'softplus']"
    build = writer.at(old)
    writer.replace(old, build.op("Log", build.op("Add", build.op("Exp", old.inputs[0]), build.floats(1.0))))
    proto = written(model)
    assert [node.name.rpartition("/")[2] for node in proto.graph.node] == [
        "Softplus_a.Exp", "Softplus_a.Add", "Softplus_a.Log", "Neg_y",
    ]  # fmt: skip
    assert proto.graph.node[2].output[0] == "a"
    assert all(len(node.metadata_props) == 1 for node in proto.graph.node[:3])
    x = uniform(3)
    np.testing.assert_allclose(run(proto, {"x": x})[0], -np.log(1 + np.exp(x)), rtol=1e-6)


def test_a_graph_output_keeps_its_name_when_it_becomes_another_value() -> None:
    model = opened("net (float[3] x) => (float[3] y, float[3] z) { y = Dropout (x)  z = Neg (x) }")
    Writer(model, Done(model, False)).replace(node_of(model, "Dropout"), model.graph.inputs[0])
    proto = written(model)
    assert [node.op_type for node in proto.graph.node] == ["Identity", "Neg"]
    assert [value.name for value in proto.graph.output] == ["y", "z"]


def test_what_nobody_reads_any_more_goes() -> None:
    model = opened(
        """net (bool c, float[3] x) => (float[3] y)
        <float[3] k = {1.0, 2.0, 3.0}>
        { a = Exp (x)  b = Mul (a, k)
          y = If (c) <then_branch = yes () => (float[3] p) { p = Neg (b) },
                      else_branch = no () => (float[3] q) { q = Abs (x) }> }"""
    )
    node, writer = node_of(model, "If"), Writer(model, Done(model, False))
    writer.replace(node, writer.at(node).op("Relu", model.graph.inputs[1]))
    proto = written(model)
    assert [node.op_type for node in proto.graph.node] == ["Relu"]
    assert list(proto.graph.initializer) == []
    assert [value.name for value in proto.graph.input] == ["c", "x"]


def test_a_node_of_which_several_results_were_read_goes_once() -> None:
    model = opened(
        """net (float[4] x, float[2] z) => (float[2] y) { p, q = Split<axis = 0>(x)  s = Add(p, q)  y = Add(s, z) }"""
    )
    node, writer = next(node for node in model.graph if node.op_type == "Add"), Writer(model, Done(model, False))
    writer.replace(node, writer.at(node).op("Relu", model.graph.inputs[1]))
    assert [node.op_type for node in written(model).graph.node] == ["Relu", "Add"]


def test_what_a_body_still_reads_stays() -> None:
    model = opened(
        """net (bool c, float[3] x) => (float[3] y, float[3] z)
        { a = Exp (x)  y = Neg (a)
          z = If (c) <then_branch = yes () => (float[3] p) { p = Neg (a) },
                      else_branch = no () => (float[3] q) { q = Abs (x) }> }"""
    )
    node, writer = node_of(model, "Neg"), Writer(model, Done(model, False))
    writer.replace(node, writer.at(node).op("Relu", model.graph.inputs[1]))
    assert [node.op_type for node in written(model).graph.node] == ["Exp", "Relu", "If"]


def test_equal_constants_are_one() -> None:
    model = opened("net (float[3] x) => (float[3] y) { y = Neg (x) }")
    build = Writer(model, Done(model, False)).at(node_of(model, "Neg"))
    assert build.floats(1.0) is build.floats(1.0)
    assert build.floats(1.0) is not build.floats([1.0])
    assert build.ints(1) is not build.floats(1.0)
