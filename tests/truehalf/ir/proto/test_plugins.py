"""What stands in front of plugins of TensorRT is converted and compared; they come back as they were."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import truehalf
from tests.messages import expect, raises
from truehalf import Precision
from truehalf.codes import codes_in
from truehalf.ir.model_file import load_model, save_model
from truehalf.ir.proto.plugins import entering, is_plugin
from truehalf.verification.report import Report

HEAD = '<ir_version: 9, opset_import: ["": 17, "my": 1, "com.msfoo": 1]> g (float[N,4] x) => '
WEIGHT = f"<float[4,4] w = {{{', '.join(str(0.1 * (i % 5)) for i in range(16))}}}>"
X = {"x": np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)}
ONE = "(float[N,4] y)"
GRAPHS = {  # outputs, nodes, and what enters plugins or what is behind them
    "one": (ONE, "a = MatMul(x, w) y = EfficientNMS_TRT <keep=3> (a)", ["a"]),
    "of a domain": (ONE, "a = MatMul(x, w) y = my.Odd(a)", ["a"]),
    "of a domain that is nearly known": (ONE, "a = MatMul(x, w) y = com.msfoo.Odd(a)", ["a"]),
    "a chain": (ONE, "a = MatMul(x, w) b = A_TRT(a) c = Relu(b) d = my.B(c, a) y = Neg(d)", ["a"]),
    "reads further in front": (ONE, "e = MatMul(x, w) a = Exp(e) b = A_TRT(a) y = Add(b, e)", ["a", "e"]),
    "an output beside": ("(float[N,4] y, float[N,4] z)", "z = MatMul(x, w) a = Exp(z) y = A_TRT(a)", ["a"]),
    "an output that enters": ("(float[N,4] y, float[N,4] a)", "a = MatMul(x, w) y = A_TRT(a)", ["a"]),
    "only beside": ("(float[N,4] y, float[N,4] z)", "y = A_TRT(x) z = MatMul(x, w)", []),
    "shared weight": (ONE, "a = MatMul(x, w) b = A_TRT(a, w) y = MatMul(b, w)", ["a"]),
    "constant": (ONE, "a = MatMul(x, w) c = Constant<value_float=2.0>() b = A_TRT(a, , c) y = Mul(b, c)", ["a"]),
    "unsorted": (ONE, "y = Neg(b) b = A_TRT(a) a = MatMul(x, w)", ["a"]),
    "a constant expression": (
        ONE,
        "a = MatMul(x, w) c = Constant<value_float=2.0>() d = Exp(c) b = A_TRT(a, d) y = Mul(b, d)",
        ["a"],
    ),
    "a body behind": (
        ONE,
        "a = MatMul(x, w) b = A_TRT(a) c = Constant<value = bool {1}>() y = If(c) <then_branch = t () => (float[N,4] u)"
        "{ u = Add(a, b) }, else_branch = e () => (float[N,4] v) { v = Identity(b) }>",
        ["a"],
    ),
}


def written(path: Path, outputs: str, nodes: str, more: str = "") -> Path:
    onnx.save(onnx.parser.parse_model(f"{HEAD}{outputs} {WEIGHT} {{ {nodes} }} {more}"), path)
    return path


def behind(path: Path) -> list[tuple[str, str, int, bytes]]:
    """Plugins: type, domain, number of inputs and attributes; and the names of the outputs."""
    graph = onnx.load(path).graph
    found = [n for n in graph.node if is_plugin(n)]
    ends = [(each.name, "", each.type.tensor_type.elem_type, b"") for each in graph.output]
    texts = [b"".join(each.SerializeToString() for each in node.attribute) for node in found]
    return [*((n.op_type, n.domain, len(n.input), text) for n, text in zip(found, texts, strict=True)), *ends]


def is_good_in_front(report: Report) -> bool:
    """Whether plugins alone keep a file from passing."""
    return report.verdict == "not verified" and codes_in(" ".join(report.reasons)) == ["plugin-not-run"]


@pytest.mark.parametrize("name", GRAPHS)
def test_it_is_converted_and_compared_up_to_its_plugins(name: str, tmp_path: Path) -> None:
    outputs, nodes, read = GRAPHS[name]
    file, out = written(tmp_path / "fp32.onnx", outputs, nodes), tmp_path / "fp16.onnx"
    assert entering(load_model(file)) == read
    made = truehalf.convert(file, out, samples=X)
    assert made.report.cast_cleanup.model["fp16_nodes"] and "plugin-not-run" in codes_in(
        " ".join(made.report.fp16.warnings)
    )
    assert behind(out) == behind(file)
    report = truehalf.compare(file, out, X)
    assert is_good_in_front(report)
    assert len(report.plugins) == sum(is_plugin(node) for node in onnx.load(file).graph.node)
    again = truehalf.convert(out).report.fp16
    assert again.status == "skipped" and again.model["nodes"] == made.report.cast_cleanup.model["nodes"]
    back = tmp_path / "back.onnx"
    save_model(load_model(file), back)
    assert {(n.op_type, *n.output) for n in onnx.load(back).graph.node} == {
        (n.op_type, *n.output) for n in onnx.load(file).graph.node
    }, "what is read and written is the same graph"


@pytest.mark.parametrize("name", GRAPHS)
def test_plugins_read_float32_where_the_ends_are_float16(name: str, tmp_path: Path) -> None:
    outputs, nodes, _ = GRAPHS[name]
    file, out = written(tmp_path / "fp32.onnx", outputs, nodes), tmp_path / "fp16.onnx"
    truehalf.convert(file, out, samples=X, precision=Precision(keep_io_types=False))
    graph = onnx.shape_inference.infer_shapes(onnx.load(out)).graph
    types = {v.name: v.type.tensor_type.elem_type for v in (*graph.value_info, *graph.input, *graph.output)}
    types |= {tensor.name: tensor.data_type for tensor in graph.initializer}
    read = {name for node in graph.node if is_plugin(node) for name in node.input}
    assert {types[name] for name in read & types.keys()} == {onnx.TensorProto.FLOAT}
    assert is_good_in_front(truehalf.compare(file, out, X))


def test_outputs_of_plugins_may_be_named(tmp_path: Path) -> None:
    file, out = written(tmp_path / "fp32.onnx", *GRAPHS["a chain"][:2]), tmp_path / "fp16.onnx"
    truehalf.convert(file, out, samples=X, precision=Precision(keep_io_types=["y"], op_include_list=["A_TRT"]))
    model = onnx.load(out)
    assert [each.type.tensor_type.elem_type for each in (*model.graph.input, *model.graph.output)] == [10, 1]
    with raises("bad-options", "'z'"):
        truehalf.convert(file, out, samples=X, precision=Precision(keep_io_types=["z"]))


def test_a_plugin_of_another_tool_may_read_float16_under_another_name(tmp_path: Path) -> None:
    file = written(tmp_path / "fp32.onnx", ONE, "a = MatMul(x, w) y = A_TRT(a)")
    other = written(
        tmp_path / "other.onnx",
        ONE,
        "h = Cast<to=10>(x) v = Cast<to=10>(w) a = MatMul(h, v) a_cast = Cast<to=1>(a) y = A_TRT(a_cast)",
    )
    assert is_good_in_front(truehalf.compare(file, other, X))
    wrong = written(tmp_path / "wrong.onnx", ONE, "m = MatMul(x, w) [planted] b = Mul(m, m) y = A_TRT(b)")
    report = truehalf.compare(file, wrong, X)
    assert (report.verdict, report.first_bad_node) == ("failed", "planted")


def test_an_overflow_in_front_is_found_where_it_is(tmp_path: Path) -> None:
    nodes = (
        "a = MatMul(x, w) s = Constant<value_float=500.0>() b = Mul(a, s) [large] c = Mul(b, s) d = Div(c, s) "
        "e = Div(d, s) y = A_TRT(e)"
    )
    file = written(tmp_path / "fp32.onnx", ONE, nodes)
    truehalf.convert(file, tmp_path / "bad.onnx", skip=["slim", "check"])
    report = truehalf.compare(file, tmp_path / "bad.onnx", X)
    assert report.verdict == "failed" and report.first_bad_node == "large"
    truehalf.convert(file, tmp_path / "good.onnx", samples=X)
    assert is_good_in_front(truehalf.compare(file, tmp_path / "good.onnx", X))


def test_a_plugin_in_a_function_is_taken_out(tmp_path: Path) -> None:
    function = '<domain: "my", opset_import: ["": 17]> F (i) => (o) { o = A_TRT(i) }'
    file = written(tmp_path / "fp32.onnx", ONE, "a = MatMul(x, w) y = my.F(a)", function)
    assert entering(load_model(file)) == ["a"]
    truehalf.convert(file, tmp_path / "fp16.onnx", samples=X)
    assert is_good_in_front(truehalf.compare(file, tmp_path / "fp16.onnx", X))


def test_ranges_models_in_memory_and_other_functions(tmp_path: Path) -> None:
    file = written(tmp_path / "fp32.onnx", *GRAPHS["a chain"][:2])
    ranges = truehalf.calibrate(file, X)
    assert {"x", "a"} <= ranges["tensors"].keys() and "d" not in ranges["tensors"]
    made = truehalf.convert(onnx.load(file), ranges=ranges)
    assert [node.op_type for node in made.model.graph][-4:] == ["A_TRT", "Relu", "B", "Neg"]
    assert is_good_in_front(truehalf.compare(onnx.load(file), made.model, X))
    for function in (truehalf.clean_casts, truehalf.repair):
        function(file, tmp_path / "out.onnx")
        assert behind(tmp_path / "out.onnx") == behind(file)


def test_what_is_behind_is_raised_to_the_same_opset(tmp_path: Path) -> None:
    nodes = "a = Exp(x) b = A_TRT(a) y = Squeeze<axes=[1]>(b)"
    onnx.save(
        onnx.parser.parse_model(
            f'<ir_version: 7, opset_import: ["": 11]> g (float[N,1] x) => (float[N] y) {{ {nodes} }}'
        ),
        tmp_path / "old.onnx",
    )
    truehalf.convert(tmp_path / "old.onnx", tmp_path / "out.onnx", precision=Precision(opset=17))
    model = onnx.load(tmp_path / "out.onnx")
    assert [(each.domain, each.version) for each in model.opset_import] == [("", 17)]
    inputs = {node.op_type: len(node.input) for node in model.graph.node}
    assert (inputs["A_TRT"], inputs["Squeeze"]) == (1, 2)


BODY = (
    "a = Relu(x) c = Constant<value = bool {1}>() y = If(c) <then_branch = t () => (float[N,4] u) { u = A_TRT(a) }, "
    "else_branch = e () => (float[N,4] v) { v = Identity(a) }>"
)


@pytest.mark.parametrize(
    ("nodes", "fact"),
    [
        ("a = A_TRT(x) y = MatMul(a, w)", "A_TRT"),
        (BODY, "A_TRT"),
        (BODY.replace("A_TRT", "com.msfoo.Odd"), "com.msfoo::Odd"),
        ("a = Relux(x) y = A_TRT(a)", "Relux"),
        ("a = Relu(x) y = Mine(a)", "Mine"),
    ],
    ids=["nothing in front", "in a body", "nearly known, in a body", "a misspelt operator", "not named as a plugin"],
)
def test_what_cannot_be_left_out_is_refused(nodes: str, fact: str, tmp_path: Path) -> None:
    file = written(tmp_path / "in.onnx", ONE, nodes)
    with raises("not-supported", fact):
        truehalf.convert(file, tmp_path / "out.onnx", samples=X)
    assert not (tmp_path / "out.onnx").exists()


@pytest.mark.parametrize("nodes", ["a = Relu(x) b = A_TRT(a) y = Relux(b)", "a = Relu(x) b = Mine(a) y = Relu(b)"])
def test_the_checker_lets_plugins_alone_pass(nodes: str, tmp_path: Path) -> None:
    file = written(tmp_path / "in.onnx", ONE, nodes)
    with raises("model-invalid", "in.onnx", "Mine" if "Mine" in nodes else "Relux"):
        truehalf.clean_casts(file, tmp_path / "out.onnx")


def test_a_spec_of_what_plugins_put_out_is_refused_with_what_enters(tmp_path: Path) -> None:
    file = written(tmp_path / "fp32.onnx", *GRAPHS["one"][:2])
    with raises("wrong-spec", "'y'", "'a'") as caught:
        truehalf.compare(file, file, X, spec={"outputs": [{"name": "y", "kind": "classes"}]})
    expect(str(caught.value), "plugin-not-run", "EfficientNMS_TRT")
