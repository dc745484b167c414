"""Opsets raised where FP16 needs it or the caller asks, and nothing lost on the way."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from tests.messages import expect, raises
from truehalf.ir.model_file import adopt_proto, load_model, save_model
from truehalf.ir.opset import ToOpset

X = np.array([[-1, 0.1, 2], [3, -4, 5]], np.float32)
LATEST = onnx.defs.onnx_opset_version()


def parsed(opset: int, body: str, inputs: str = "float[2,3] x", outputs: str = "float[2,3] y") -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f'<ir_version: 4, opset_import: ["": {opset}]> g ({inputs}) => ({outputs}) {{ {body} }}'
    )


def raised(proto: onnx.ModelProto, target: int | None = None) -> tuple[onnx.ModelProto, list[str]]:
    done = ToOpset(target)(ir.from_proto(proto))
    result = ir.to_proto(done.model)
    onnx.checker.check_model(result, full_check=True)
    return result, done.notes()


def run(proto: onnx.ModelProto, **feeds: np.ndarray) -> np.ndarray:
    (result,) = ReferenceEvaluator(proto).run(None, feeds or {"x": X})
    return np.asarray(result)


def opset(proto: onnx.ModelProto) -> int:
    return next(entry.version for entry in proto.opset_import if entry.domain == "")


@pytest.mark.parametrize("source", range(7, LATEST + 1))
def test_what_fp16_can_be_stated_in_stays(source: int) -> None:
    model = ir.from_proto(parsed(source, "y = Relu(x)"))
    assert ToOpset()(model).notes() == []
    assert model.graph.opset_imports == {"": source}


@pytest.mark.parametrize("source", range(1, 7))
def test_what_is_older_is_raised(source: int) -> None:
    body = "[first] a = Add<broadcast=1, axis=0>(x, v) [last] y = Neg(a)"
    result, notes = raised(parsed(source, body, "float[2,3] x, float[2] v"))
    (note,) = notes
    assert opset(result) == 7
    expect(note, None, source, 7)
    assert [node.name for node in result.graph.node][-1] == "last"
    assert [value.name for value in result.graph.input] == ["x", "v"]
    v = np.array([10, 20], np.float32)
    np.testing.assert_array_equal(run(result, x=X, v=v), -X - v[:, None])


@pytest.mark.parametrize("source", range(1, 5))
def test_integer_attributes_of_old_become_initializers(source: int) -> None:
    """Reshape got its shape by attribute until opset 4, and Constant held no integers until opset 8."""
    result, _ = raised(parsed(source, "y = Reshape<shape=[3,2]>(x)", outputs="float[3,2] y"))
    assert [node.op_type for node in result.graph.node] == ["Reshape"]
    np.testing.assert_array_equal(run(result), X.reshape(3, 2))


@pytest.mark.parametrize("source", range(1, LATEST + 1))
def test_every_opset_is_raised_to_the_latest(source: int) -> None:
    result, _ = raised(parsed(source, "a = Relu(x) b = Softmax<axis=1>(a) y = Neg(b)"), LATEST)
    assert opset(result) == LATEST
    positive = np.exp(np.maximum(X, 0))
    np.testing.assert_allclose(run(result), -positive / positive.sum(1, keepdims=True), rtol=1e-6)


def test_a_target_below_the_source_is_noted() -> None:
    result, notes = raised(parsed(17, "y = Relu(x)"), 13)
    assert opset(result) == 17
    (note,) = notes
    expect(note, None, 17, 13)


def test_a_target_beyond_what_onnx_knows() -> None:
    with raises("wrong-opset", f"opset {LATEST + 1}", LATEST):
        raised(parsed(17, "y = Relu(x)"), LATEST + 1)


TILE = "y = Tile(x, n, axis)", "float[2,3] x, float n, float axis", "float[2,6] y"


def test_an_operator_that_cannot_be_raised_is_named() -> None:
    with raises("wrong-opset", "opset 1", 7, 5, "Tile"):
        raised(parsed(1, *TILE))


@pytest.mark.parametrize(
    ("source", "target", "body", "outputs", "operator"),
    [
        (6, None, "y = Less<broadcast=1>(x, v)", "bool[2,3] y", "Less"),
        (5, None, 'y = Cast<to="FLOAT16">(x)', "float16[2,3] y", "Cast"),
        (1, 17, "y = Pad<paddings=[0,1,0,0]>(x)", "float[2,4] y", "Pad"),
        (6, None, "y, h = GRU<hidden_size=3>(b, w, w)", "float[2,1,2,3] y", "GRU"),
    ],
)
def test_operators_that_onnx_has_no_rule_for(
    source: int, target: int | None, body: str, outputs: str, operator: str
) -> None:
    model = ir.from_proto(parsed(source, body, "float[2,3] x, float[3] v, float[2,2,3] b, float[1,9,3] w", outputs))
    with raises("wrong-opset", f"opset {source}", target or 7, operator):
        ToOpset(target)(model)
    assert model.graph.opset_imports == {"": source} and operator in {node.op_type for node in model.graph}


def test_only_other_domains() -> None:
    text = '<ir_version: 8, opset_import: ["their": 1]> g (float[2] x) => (float[2] y) { y = their.Op(x) }'
    model = ir.from_onnx_text(text)
    done = ToOpset(20)(model)
    assert (done.modified, done.notes()) == (False, [])


def test_bodies_are_raised_too() -> None:
    body = """y = If(c) <then_branch = t () => (float[1,2,3] ty) { ty = Unsqueeze<axes=[0]>(x) },
                         else_branch = e () => (float[1,2,3] ey) { n = Neg(x) ey = Unsqueeze<axes=[0]>(n) }>"""
    result, _ = raised(parsed(11, body, "float[2,3] x, bool c", "float[1,2,3] y"), 13)
    np.testing.assert_array_equal(run(result, x=X, c=np.array(False)), -X[None])


def test_nothing_is_lost(tmp_path: Path) -> None:
    body = """[constant] k = Constant<value = float[1] {0.5}>()  [add] a = Add(x, w)  b = Mul(a, k)
        y = If(c) <then_branch = t () => (float[300] ty) { ty = Add(b, v) },
                   else_branch = e () => (float[300] ey) { ey = Neg(b) }>"""
    proto = parsed(11, body, "float[300] x, bool c", "float[300] y")
    proto.ir_version = 8
    arrays = {name: np.random.default_rng(i).random(300, np.float32) for i, name in enumerate("wv")}
    proto.graph.initializer.append(onnx.numpy_helper.from_array(arrays["w"], "w"))
    branch = proto.graph.node[3].attribute[0].g
    branch.initializer.append(onnx.numpy_helper.from_array(arrays["v"], "v"))
    proto.graph.node[0].attribute[0].t.CopyFrom(onnx.numpy_helper.from_array(arrays["v"]))  # a large one
    proto.metadata_props.add(key="stamp", value="kept")
    onnx.save(proto, tmp_path / "in.onnx", save_as_external_data=True, location="in.data", size_threshold=0)
    model = ToOpset(18)(load_model(tmp_path / "in.onnx")).model
    assert model.metadata_props == {"stamp": "kept"}
    assert [node.name for node in model.graph][:2] == ["constant", "add"]
    save_model(model, tmp_path / "out.onnx")
    x = np.ones(300, np.float32)
    expected = (x + arrays["w"]) * arrays["v"] + arrays["v"]
    np.testing.assert_allclose(run(onnx.load(tmp_path / "out.onnx"), x=x, c=np.array(True)), expected, rtol=1e-6)


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("kind", ["initializer", "Constant"])
def test_sibling_bodies_may_share_names(kind: str, large: bool) -> None:
    """Whatever has the same name, its branch gets its own back: weights, and the properties of its nodes."""
    body = """y = If(c) <then_branch = t () => (float[n] ty) { r = Add(x, w) s = Relu(r) ty = Identity(s) },
                         else_branch = e () => (float[n] ey) { r = Add(x, w) s = Neg(r) ey = Identity(s) }>"""
    count = 300 if large else 3
    proto = parsed(11, body.replace("n]", f"{count}]"), f"float[{count}] x, bool c", f"float[{count}] y")
    proto.ir_version = 8
    for branch, weight in zip(proto.graph.node[0].attribute, (1, 5), strict=True):
        tensor = onnx.numpy_helper.from_array(np.full(count, weight, np.float32), "w")
        if kind == "initializer":
            branch.g.initializer.append(tensor)
            branch.g.initializer.append(onnx.numpy_helper.from_array(X, f"unused_{weight}"))
        else:
            branch.g.node.insert(0, onnx.helper.make_node("Constant", [], ["w"], value=tensor))
    model = ir.from_proto(proto)
    for graph, place in zip(list(model.graphs())[1:], "te", strict=True):
        next(node for node in graph if node.op_type == "Add").metadata_props["place"] = place
    result = ToOpset(18)(model).model
    branches = list(result.graphs())[1:]
    assert [node.metadata_props["place"] for graph in branches for node in graph if node.op_type == "Add"] == ["t", "e"]
    for branch in branches:
        assert [value.name for node in branch for value in node.outputs if node.op_type == "Add"] == ["r"]
        assert "w" in ir.convenience.create_value_mapping(branch)
    x = np.zeros(count, np.float32)
    assert run(ir.to_proto(result), x=x, c=np.array(True))[0] == 1
    assert run(ir.to_proto(result), x=x, c=np.array(False))[0] == -5


def test_weights_that_old_files_list_among_the_inputs() -> None:
    proto = parsed(8, "y = Add(x, w)", "float[2,3] x, float[2,3] w")
    proto.ir_version = 3
    proto.graph.initializer.append(onnx.numpy_helper.from_array(X, "w"))
    result = ir.to_proto(adopt_proto(proto, "m.onnx"))
    assert result.ir_version == 4
    assert [value.name for value in result.graph.input] == ["x"]
    np.testing.assert_array_equal(run(result), 2 * X)


def test_an_integer_constant_that_is_an_output_is_valid_where_constants_hold_floats_only() -> None:
    body, outputs = "y = Relu(x) n = Constant<value = int64[1] {3}>()", "float[2,3] y, int64[1] n"
    result, _ = raised(parsed(6, body, outputs=outputs))
    assert [tensor.name for tensor in result.graph.initializer] == ["n"]


def test_properties_of_nodes_stay() -> None:
    model = ir.from_proto(parsed(17, "y = Relu(x)"))
    model.graph[0].metadata_props["place"] = "here"
    assert ToOpset(18)(model).model.graph[0].metadata_props["place"] == "here"
