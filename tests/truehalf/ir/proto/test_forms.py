"""Models in forms that readers do not take are restated; what breaks the rules of graphs is refused in one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.reference
import pytest
from onnx import helper

import truehalf
from tests.messages import raises
from truehalf.ir.model_file import load_model
from truehalf.runtime.ort import Session

Make = Callable[[], onnx.ModelProto]
HEAD = '<ir_version: 9, opset_import: ["": 17, "my": 1]> g (float[2,4] x) => (float[2,4] y) '


def text(nodes: str, functions: str = "", head: str = HEAD) -> onnx.ModelProto:
    return onnx.parser.parse_model(head + "{" + nodes + "}" + functions)


def of_function(body: str, inner: int, outer: int = 17) -> onnx.ModelProto:
    """A graph that calls a function of another opset."""
    head = HEAD.replace("17", str(outer))
    function = f' <domain: "my", opset_import: ["": {inner}, "my": 1]> F (x) => (y) {{ {body} }}'
    return text("a = my.F(x) y = Neg(a)", function, head)


def with_a_sparse_tensor(in_a_constant: bool) -> onnx.ModelProto:
    model, numbers = text("y = MatMul(x, w)"), np.arange(3)
    tensors = onnx.numpy_helper.from_array(numbers.astype(np.float32), "w"), onnx.numpy_helper.from_array(numbers, "at")
    sparse = helper.make_sparse_tensor(*tensors, [4, 4])
    if in_a_constant:
        model.graph.node.insert(0, helper.make_node("Constant", [], ["w"], sparse_value=sparse))
    else:
        model.graph.sparse_initializer.append(sparse)
    return model


def convert(model: onnx.ModelProto, folder: Path) -> None:
    onnx.save(model, folder / "in.onnx")
    feed = {"x": np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)}
    result = truehalf.convert(folder / "in.onnx", folder / "out.onnx", samples=[feed])
    assert result.report.check is not None
    assert result.report.check.state == "verified"


def test_a_function_of_another_opset_is_the_graphs_where_it_means_the_same(tmp_path: Path) -> None:
    convert(of_function("y = Relu(x)", 14), tmp_path)


@pytest.mark.parametrize(
    ("body", "inner", "outer"),
    [("y = Softmax<axis=-1>(x)", 11, 17), ("t = ReduceMean<axes=[1], keepdims=1>(x) y = Sub(x, t)", 17, 18)],
)
def test_one_that_means_something_else_is_converted(tmp_path: Path, body: str, inner: int, outer: int) -> None:
    convert(of_function(body, inner, outer), tmp_path)


@pytest.mark.parametrize("opset", [9, 17])
@pytest.mark.parametrize("axes", ["", "<axes=[1]>"])
def test_mean_variance_normalization(tmp_path: Path, opset: int, axes: str) -> None:
    head = HEAD.replace("17", str(opset)).replace("[2,4]", "[2,3,4,4]")
    model = text(f"a = MeanVarianceNormalization{axes}(x) y = Neg(a)", head=head)
    onnx.save(model, tmp_path / "in.onnx")
    feed = {"x": np.random.default_rng(0).normal(size=(2, 3, 4, 4)).astype(np.float32)}
    result = truehalf.convert(tmp_path / "in.onnx", tmp_path / "out.onnx", samples=[feed])
    assert result.report.check is not None
    assert result.report.check.state == "verified"


@pytest.mark.parametrize("sides", [(-1, 4), (-1, -1)])
@pytest.mark.parametrize("kind", ["input", "output", "value_info"])
def test_sizes_below_zero_are_free(tmp_path: Path, kind: str, sides: tuple[int, ...]) -> None:
    model = text("a = Relu(x) y = Neg(a)", head=HEAD.replace("[2,4]", "[n,4]"))
    info = helper.make_tensor_value_info("x" if kind == "input" else "y" if kind == "output" else "a", 1, sides)
    values = getattr(model.graph, kind)
    del values[:]
    values.append(info)
    convert(model, tmp_path)


def named_twice(name: str, *shapes: list[int]) -> onnx.ModelProto:
    """A product with weights of one name."""
    model, rng = text(f"y = MatMul(x, {name})"), np.random.default_rng(0)
    weights = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    model.graph.initializer.extend(onnx.numpy_helper.from_array(each, name) for each in weights)
    return model


def without_imports(model: onnx.ModelProto, *domains: str) -> onnx.ModelProto:
    kept = [opset for opset in model.opset_import if opset.domain not in domains]
    del model.opset_import[:]
    model.opset_import.extend(kept)
    return model


def without_shapes(model: onnx.ModelProto, *names: str, typed: bool = True) -> onnx.ModelProto:
    for value in (*model.graph.input, *model.graph.output):
        if value.name in names:
            value.type.tensor_type.ClearField("shape") if typed else value.ClearField("type")
    return model


def of_ir_version_3(model: onnx.ModelProto) -> onnx.ModelProto:
    """Where weights are to be inputs, too."""
    model.ir_version = 3
    return model


def of_no_type(model: onnx.ModelProto) -> onnx.ModelProto:
    model.graph.initializer[0].data_type = onnx.TensorProto.UNDEFINED
    return model


def without_a_name(model: onnx.ModelProto) -> onnx.ModelProto:
    model.graph.name = ""
    return model


def with_a_map() -> onnx.ModelProto:
    made = text("y = Softmax(x)")
    row = onnx.helper.make_map_type_proto(onnx.TensorProto.STRING, onnx.helper.make_tensor_type_proto(1, []))
    made.graph.output[0].CopyFrom(onnx.helper.make_value_info("y", onnx.helper.make_sequence_type_proto(row)))
    return made


@pytest.mark.parametrize(
    "make",
    [
        lambda: without_shapes(text("y = Relu(x)"), "y"),
        lambda: without_shapes(text("y = Relu(x)"), "x", "y"),
        lambda: without_shapes(text("y = Relu(x)"), "y", typed=False),
        lambda: without_shapes(text("s = Shape(x) t = Abs(s) a = Relu(x) y = Reshape(a, t)"), "y"),
        lambda: without_a_name(text("y = Relu(x)")),
        lambda: without_imports(text("y = com.microsoft.Gelu(x)", head=HEAD.replace("my", "com.microsoft")), ""),
        lambda: without_imports(text("y = com.microsoft.Gelu(x)")),
        lambda: without_imports(text("y = Relu(x)"), ""),
        lambda: text(
            "t = Optional(x) y = OptionalGetElement(t)", head=HEAD.replace("17", "18")
        ),  # onnxslim fails at it
        lambda: of_ir_version_3(named_twice("w", [4, 4])),
    ],
)
def test_what_the_checker_of_onnx_refuses_and_the_runtime_runs(tmp_path: Path, make: Make) -> None:
    """As a file and in memory."""
    model, feed = make(), {"x": np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)}
    convert(model, tmp_path)
    expected = Session(tmp_path / "in.onnx").run(feed)["y"]
    made = truehalf.convert(model, samples=[feed]).model
    np.testing.assert_allclose(Session(made).run(feed)["y"], expected, 1e-2, 1e-2)


def called(nodes: str, inner: str = "y = my.F(x)") -> onnx.ModelProto:
    """A graph that calls a function F of one input and one output, or G, which calls F."""
    domain = '<domain: "my", opset_import: ["": 17, "my": 1]>'
    return text(nodes, f" {domain} F (x) => (y) {{ y = Neg(x) }} {domain} G (x) => (y) {{ {inner} }}")


def branching(result: str) -> onnx.ModelProto:
    """A graph with an empty branch, whose output is called so."""
    return text(
        "a = Relu(x) c = Constant<value_int=1>() b = Cast<to=9>(c)"
        f"y = If(b) <then_branch = t () => (float[2,4] {result}) {{ }},"
        " else_branch = e () => (float[2,4] q) { q = Neg(a) }>"
    )


CIRCLE = ' <domain: "my", opset_import: ["": 17, "my": 1]> '


@pytest.mark.parametrize(
    ("make", "code", "facts"),
    [
        (lambda: text("y = Add(x, nope)"), "model-invalid", ["'nope'", "Add"]),
        (lambda: text("a = MatMul(x, w) y = Relu(a)"), "model-invalid", ["'w'", "MatMul"]),
        (lambda: text("z = Relu(x)"), "model-invalid", ["'y'"]),
        (lambda: of_function("y = Add(x, nope)", 17), "model-invalid", ["'nope'"]),
        (lambda: of_function("z = Relu(x)", 17), "model-invalid", ["nothing defines"]),
        (lambda: of_function("y = my.F(x)", 17), "model-invalid", ["my::F"]),
        (
            lambda: text(
                "y = my.F(x)", f"{CIRCLE} F (x) => (y) {{ y = my.G(x) }}{CIRCLE} G (x) => (y) {{ y = my.F(x) }}"
            ),
            "model-invalid",
            ["my::F", "my::G"],
        ),
        (lambda: called("y = my.F(x, x)"), "model-invalid", ["F, G"]),
        (lambda: called("y, z = my.F(x)"), "model-invalid", ["F, G"]),
        (lambda: text("k = Constant() y = Add(x, k)"), "file-unreadable", ["(Constant)"]),
        (lambda: branching("a"), "model-invalid", ["'a'"]),
        (lambda: named_twice("w", [4, 4], [4, 4]), "model-invalid", ["'w'", 2]),
        (lambda: of_no_type(named_twice("w", [4, 4])), "file-unreadable", []),
        (lambda: text("x = Relu(x) y = Neg(x)"), "model-invalid", ["'x'"]),
        (lambda: text("y = Neg(x)", head=HEAD.replace("x)", "x, float[2,4] x)")), "model-invalid", ["'x'"]),
        (lambda: text("y = com.acme.Op(x)"), "not-supported", ["com.acme"]),
        (with_a_map, "file-unreadable", []),
        (lambda: with_a_sparse_tensor(False), "not-supported", ["'w'", "sparse"]),
        (lambda: with_a_sparse_tensor(True), "file-unreadable", []),
        (lambda: text("y = my.Gone(x)"), "not-supported", ["my::Gone"]),
        (lambda: text("y = EfficientNMS_TRT(x)"), "not-supported", ["EfficientNMS_TRT", "--no-slim"]),
        (lambda: text("[one] a = Add(x, b) [two] b = Relu(a) y = Relu(b)"), "graph-cycle", ["'one'"]),
        (lambda: text("[one] y = Add(x, y)"), "graph-cycle", ["'one'"]),
    ],
)
def test_broken_graphs_are_refused_with_their_cause(
    tmp_path: Path, make: Make, code: str, facts: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    onnx.save(make(), tmp_path / "in.onnx")
    with raises(code, *facts):
        truehalf.convert(tmp_path / "in.onnx", tmp_path / "out.onnx")
    assert capfd.readouterr().out == ""
    assert not (tmp_path / "out.onnx").exists()


@pytest.mark.parametrize("seed", range(4))
def test_one_cut_name_of_a_drawn_graph_is_named(tmp_path: Path, seed: int) -> None:
    """Of a chain with skips, one node is taken away: its first reader is named."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(4, 9))
    lines = ["t0 = Relu(x)"] + [f"t{i} = Add(t{i - 1}, t{rng.integers(0, i)})" for i in range(1, count)]
    model = text(" ".join([*lines, f"y = Neg(t{count - 1})"]))
    cut = int(rng.integers(0, count))
    del model.graph.node[cut]
    for make in (lambda path: onnx.save(model, path), lambda path: onnx.save(shuffled(model, rng), path)):
        make(tmp_path / "in.onnx")
        with raises("model-invalid", f"'t{cut}'"):
            load_model(tmp_path / "in.onnx")


def shuffled(model: onnx.ModelProto, rng: np.random.Generator) -> onnx.ModelProto:
    nodes = list(model.graph.node)
    mixed = onnx.ModelProto()
    mixed.CopyFrom(model)
    del mixed.graph.node[:]
    mixed.graph.node.extend(nodes[i] for i in rng.permutation(len(nodes)))
    return mixed
