"""Order, names and types: what passes rely on."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir

from tests.messages import raises
from truehalf.ir.normalize import (
    NORMALIZE,
    InferTypes,
    NameNodes,
    Names,
    proto_without_weights,
    sort_nodes,
    unique_names,
)

HEAD = '<ir_version: 8, opset_import: ["": 17]> g '


def names(model: ir.Model) -> list[str]:
    return [node.name or "" for node in ir.traversal.RecursiveGraphIterator(model.graph)]


def test_nodes_without_a_name_get_one_and_repeated_names_a_number() -> None:
    model = ir.from_onnx_text(
        HEAD + "(float[2] x) => (float[2] y) { [n] a = Relu(x) b = Relu(a) [n] c = Relu(b) [n_1] y = Relu(c) }"
    )
    NameNodes()(model)
    assert names(model) == ["n", "Relu_b", "n_2", "n_1"]


def test_names_are_unique_across_subgraphs() -> None:
    body = (
        "{ [n] y = If(c) <then_branch = t () => (float[2] ty) { [n] ty = Relu(x) }, "
        "else_branch = e () => (float[2] ey) { [n] ey = Neg(x) }> }"
    )
    model = ir.from_onnx_text(HEAD + "(float[2] x, bool c) => (float[2] y) " + body)
    NameNodes()(model)
    assert len(set(names(model))) == 3


def test_fresh_names_clash_with_no_value_and_no_node() -> None:
    model = ir.from_onnx_text(HEAD + "(float[2] x) => (float[2] y) <float[2] w = {1.0, 2.0}> { [n] y = Add(x, w) }")
    fresh = Names(model)
    assert [fresh.fresh(name) for name in ("x", "y", "w", "n", "n", "new", "new")] == [
        "x_1", "y_1", "w_1", "n_1", "n_2", "new", "new_1",
    ]  # fmt: skip


def test_a_sorted_graph_keeps_its_order() -> None:
    model = ir.from_onnx_text(
        HEAD + "(float[2] x) => (float[2] y) { [n2] a = Relu(x) [n1] b = Neg(x) [n0] y = Add(b, a) }"
    )
    sort_nodes(model)
    assert names(model) == ["n2", "n1", "n0"]


def quoted(error: Exception) -> list[str]:
    """The names in a message."""
    return re.findall(r"'(\w+)'", str(error))


def test_the_cycle_is_named_not_what_hangs_on_it() -> None:
    body = "{ [a] a = Add(x, c) [b] b = Relu(a) [c] c = Relu(b) [d] d = Relu(c) [e] y = Relu(d) }"
    model = ir.from_onnx_text(HEAD + "(float[2] x) => (float[2] y) " + body)
    with raises("graph-cycle") as caught:
        sort_nodes(model)
    assert quoted(caught.value) in (["a"], ["b"], ["c"])


def test_a_cycle_in_a_subgraph_is_named() -> None:
    body = (
        "{ y = If(c) <then_branch = t () => (float[2] ty) { [p] ty = Add(x, q) [q] q = Relu(ty) }, "
        "else_branch = e () => (float[2] ey) { ey = Neg(x) }> }"
    )
    model = ir.from_onnx_text(HEAD + "(float[2] x, bool c) => (float[2] y) " + body)
    with raises("graph-cycle") as caught:
        sort_nodes(model)
    assert quoted(caught.value) in (["p"], ["q"])


def test_types_are_inferred_and_symbolic_dimensions_kept() -> None:
    model = ir.from_onnx_text(HEAD + '(float["n", 3] x) => (float["n", 3] y) { a = Relu(x) y = Relu(a) }')
    InferTypes()(model)
    value = model.graph[0].outputs[0]
    assert value.dtype == ir.DataType.FLOAT
    assert str(value.shape) == "[n,3]"


def test_outputs_keep_the_shape_that_the_model_states() -> None:
    model = ir.from_onnx_text(
        HEAD + '(float[2, 3] x) => (float["n", 3] y, float z) { a = Relu(x) y = Relu(a) z = Relu(y) }'
    )
    model.graph.outputs[1].shape = None
    InferTypes()(model)
    assert [str(node.outputs[0].shape) for node in model.graph] == ["[2,3]", "[n,3]", "[2,3]"]


def test_what_is_missing_is_inferred_where_a_type_or_a_rank_is() -> None:
    graph = '(float[2, 3] x) => (float[2, 3] y) <float["n", 3] a> { a = Relu(x) b = Relu(a) y = Relu(b) }'
    model = ir.from_onnx_text(HEAD + graph)
    InferTypes(missing=True)(model)
    assert [str(node.outputs[0].shape) for node in model.graph][1:] == ["[2,3]", "[2,3]"]
    model.graph[0].outputs[0].shape = ir.Shape(["n", 3])
    assert not InferTypes(missing=True)(model).modified
    assert str(model.graph[0].outputs[0].shape) == "[n,3]"


def test_inner_graphs_that_state_no_types_of_their_inputs_get_them() -> None:
    body = "body = b (float[2] s, float[2] r) => (float[2] t, float[2] u) { t = Add(s, r) u = Relu(t) }"
    graph = f"{{ y, z = Scan<num_scan_inputs = 1, {body}>(i, x) }}"
    model = ir.from_onnx_text(HEAD + "(float[2] i, float[3, 2] x) => (float[2] y, float[3, 2] z) " + graph)
    inner = next(graph for graph in model.graphs() if graph is not model.graph)
    for value in inner.inputs:
        value.type = value.shape = None
    InferTypes(missing=True)(model)
    assert [value.dtype for value in inner.inputs] == [ir.DataType.FLOAT] * 2


def test_normalizing_twice_changes_nothing_more() -> None:
    model = ir.from_onnx_text(HEAD + "(float[2] x) => (float[2] y) { a = Relu(x) a2 = Relu(a) y = Relu(a2) }")
    NORMALIZE(model)
    once = ir.to_proto(model).SerializeToString(deterministic=True)
    NORMALIZE(model)
    assert ir.to_proto(model).SerializeToString(deterministic=True) == once


def test_sequences_keep_their_type_and_weights_stay() -> None:
    body = "(float[2] x) => (float[2] y) <int64 i = {0}> { s = SequenceConstruct(x, x) y = SequenceAt(s, i) }"
    proto = onnx.parser.parse_model(HEAD + body)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(400, np.float32), "w"))
    model = ir.from_proto(proto)
    InferTypes()(model)
    assert model.graph[0].outputs[0].type == ir.SequenceType(ir.TensorType(ir.DataType.FLOAT))
    assert model.graph.initializers["w"].const_value.numpy().sum() == 400


def test_shapes_follow_constants_in_external_data(tmp_path: Path) -> None:
    body = '(float["n", 6] x) => (float[a, b, c] y) { z = Reshape(x, s) y = Relu(z) }'
    proto = onnx.parser.parse_model(HEAD + body)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array([0, 2, 3]), "s"))
    options = {"save_as_external_data": True, "location": "w", "size_threshold": 0}
    onnx.save(proto, tmp_path / "m.onnx", **options)
    model = ir.load(tmp_path / "m.onnx")
    InferTypes()(model)
    assert str(model.graph[0].outputs[0].shape) == "[n,2,3]"


def test_a_light_proto_mentions_weights_wherever_they_stand() -> None:
    body = """{ k = Constant<value = int64[1] {400}>() y = If(c) <
        then_branch = t () => (float[400] ty) { ty = Neg(w) },
        else_branch = e () => (float[400] ey) { ey = Expand(one, k) }> }"""
    proto = onnx.parser.parse_model(HEAD + "(bool c, float[1] one) => (float[400] y) " + body)
    branches = [attribute.g for attribute in proto.graph.node[1].attribute]
    branches[0].initializer.append(onnx.numpy_helper.from_array(np.ones(400, np.float32), "w"))
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array(["long"] * 400, object), "text"))
    model = ir.from_proto(proto)
    light = proto_without_weights(model)
    assert light.graph.node[1].attribute[0].g.initializer[0].data_location == onnx.TensorProto.EXTERNAL
    assert ir.to_proto(model).SerializeToString() == ir.to_proto(ir.from_proto(proto)).SerializeToString()
    InferTypes()(model)
    shapes = [str(value.shape) for graph in model.graphs() for node in graph for value in node.outputs]
    assert shapes == ["[1]", "[400]", "[400]", "[400]"]


SIBLINGS = """(float[2,3] x, float[5,7] v, bool c) => (float[K,L] y) { y = If(c) <
    then_branch = t () => (float[A,B] ty) { n = Shape(x) r = Expand(x, n) ty = Identity(r) },
    else_branch = e () => (float[C,D] ey) { n = Shape(v) r = Expand(v, n) ey = Identity(r) }> }"""


def test_sibling_bodies_that_share_names_get_their_own_shapes() -> None:
    model = ir.from_onnx_text(HEAD + SIBLINGS)
    InferTypes()(model)
    shapes = [[str(value.shape) for node in graph for value in node.outputs] for graph in list(model.graphs())[1:]]
    assert [branch[:2] for branch in shapes] == [["[2]", "[2,3]"], ["[2]", "[5,7]"]]


def test_names_are_apart_for_a_while_and_then_as_they_were() -> None:
    body = """(float[2] x, bool c) => (float[2] y) <float[2] w = {1, 2}> { y = If(c) <
        then_branch = t () => (float[2] r) <float[2] v = {1, 2}, float[2] last = {1, 2}> { r = Add(x, v) },
        else_branch = e () => (float[2] r) <float[2] v = {3, 4}, float[2] rest = {1, 2}> { r = Add(w, v) }> }"""
    model = ir.from_onnx_text(HEAD + body)
    before = ir.to_proto(model).SerializeToString()
    with unique_names(model) as originals:
        assert originals == {"v_1": "v", "r_1": "r"}
        apart = ir.to_proto(model).graph.node[0].attribute[1].g
        assert [tensor.name for tensor in apart.initializer] == ["v_1", "rest"]
        assert (list(apart.node[0].input), apart.output[0].name) == (["w", "v_1"], "r_1")
    assert ir.to_proto(model).SerializeToString() == before
