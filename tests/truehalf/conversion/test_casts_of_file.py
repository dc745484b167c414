"""The cast clean-up of a file, of ours and of other tools."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.messages import raises
from truehalf.conversion.casts_of_file import clean_casts, drop_repeated_nodes

HEAD = '<ir_version: 8, opset_import: ["": 17]> g '
PAIR = HEAD + "(float[2] x) => (float[2] y) { a = Cast<to = 10>(x) b = Cast<to = 1>(a) y = Relu(b) }"


def saved(folder: Path, proto: onnx.ModelProto | str = PAIR) -> Path:
    onnx.save(onnx.parser.parse_model(proto) if isinstance(proto, str) else proto, folder / "in.onnx")
    return folder / "in.onnx"


def test_the_report_counts(tmp_path: Path) -> None:
    report = clean_casts(saved(tmp_path), tmp_path / "out.onnx")
    assert (report.casts_before, report.casts_after) == (2, 0)
    assert report.rules == {"dead": 1, "rounding": 1, "same_type": 1}
    assert report.repeated_nodes_dropped == 0
    assert report.model["nodes"] == 1
    json.dumps(report.to_json())


def test_strict_changes_no_value(tmp_path: Path) -> None:
    report = clean_casts(saved(tmp_path), tmp_path / "out.onnx", strict=True)
    assert report.casts_after == 2


def from_onnxruntime() -> onnx.ModelProto:
    """What ONNX Runtime's converter makes of one tensor that several blocked nodes read: refused by the checker."""
    from onnxruntime.transformers.float16 import convert_float_to_float16

    body = "{ a = Relu(x) b = MatMul(a, a) c = Softmax(b) d = MatMul(a, c) e = Softmax(a) f = Add(c, d) y = Add(f, e) }"
    model = onnx.parser.parse_model(HEAD + "(float[4,4] x) => (float[4,4] y) " + body)
    result = convert_float_to_float16(model, keep_io_types=True, op_block_list=["Softmax", "MatMul"])
    with pytest.raises(onnx.checker.ValidationError):
        onnx.checker.check_model(result)
    return result


def test_onnxruntimes_unsorted_graph_with_repeated_nodes_is_mended(tmp_path: Path) -> None:
    broken = from_onnxruntime()
    report = clean_casts(saved(tmp_path, broken), tmp_path / "out.onnx")
    fixed = onnx.load(tmp_path / "out.onnx")
    onnx.checker.check_model(fixed, full_check=True)
    assert report.repeated_nodes_dropped == 3
    assert report.casts_before == sum(node.op_type == "Cast" for node in broken.graph.node)
    assert report.casts_after == sum(node.op_type == "Cast" for node in fixed.graph.node) == 6
    import onnxruntime as ort

    x = np.random.default_rng(0).random((4, 4), dtype=np.float32)
    (y,) = ort.InferenceSession(str(tmp_path / "out.onnx")).run(None, {"x": x})
    b = x @ x
    c = np.exp(b) / np.exp(b).sum(-1, keepdims=True)
    expected = c + x @ c + np.exp(x) / np.exp(x).sum(-1, keepdims=True)
    np.testing.assert_allclose(y, expected, rtol=3e-3)  # three float16 additions, each within 2^-11


ATTENTION = """{
    q = MatMul(x, w)  k = MatMul(x, w)  kt = Transpose(k)  s = MatMul(q, kt)  m = Where(mask, s, low)  p = Softmax(m)
    v = MatMul(p, x)  r = Add(v, x)  mean = ReduceMean<axes = [-1]>(r)  d = Sub(r, mean)  two = Mul(d, d)
    var = ReduceMean<axes = [-1]>(two)  e = Add(var, eps)  sd = Sqrt(e)  n = Div(d, sd)  u = Reshape(n, shape)
    o = Concat<axis = 0>(u, n)  y = Slice(o, from, to)
    z = If(c) <then_branch = t () => (float[4,4] tz) { a = Relu(r)  b = Max(a, w)  tz = Sigmoid(b) },
               else_branch = f () => (float[4,4] fz) { fz = Neg(r) }> }"""
ATTENTION_WEIGHTS = """<float[4,4] w = {1,0,0,1, 0,1,1,0, 0,1,0,1, 1,0,1,0}, float low = {-10000.0},
    float eps = {0.001},
    bool[4,4] mask = {1,1,0,0, 1,1,1,0, 1,1,1,1, 1,0,0,1}, int64[2] shape = {4, 4}, int64[1] from = {2},
    int64[1] to = {6}>"""


@pytest.mark.parametrize("keep_io_types", [True, False])
@pytest.mark.parametrize(
    ("blocked", "before", "after"),  # Casts with float16 inputs and outputs, with float32 ones
    [
        (["Softmax"], (2, 5), (2, 5)),  # nothing to gain: one lone operator
        (["Softmax", "MatMul"], (14, 17), (2, 4)),  # the attention is all float32
        (["ReduceMean", "Sqrt"], (6, 9), (6, 9)),  # three lone operators
        (["Transpose", "Where"], (4, 7), (0, 3)),  # data movement only
        (["Add", "Sub", "Mul", "Reshape"], (13, 16), (8, 10)),
    ],
)
def test_what_onnxruntimes_converter_makes_of_attention(
    tmp_path: Path, blocked: list[str], before: tuple[int, int], after: tuple[int, int], keep_io_types: bool
) -> None:
    import onnxruntime as ort
    from onnxruntime.transformers.float16 import convert_float_to_float16

    inputs = "(float[4,4] x, bool c) => (float[4,4] y, float[4,4] z)"
    model = onnx.parser.parse_model(f"{HEAD} {inputs} {ATTENTION_WEIGHTS} {ATTENTION}")
    onnx.checker.check_model(model, full_check=True)
    theirs = convert_float_to_float16(copy.deepcopy(model), keep_io_types=keep_io_types, op_block_list=blocked)
    count = sum(node.op_type == "Cast" for graph in graphs(theirs.graph) for node in graph.node)
    report = clean_casts(saved(tmp_path, theirs), tmp_path / "out.onnx")
    fixed = onnx.load(tmp_path / "out.onnx")
    onnx.checker.check_model(fixed, full_check=True)
    assert [value.name for value in fixed.graph.output] == ["y", "z"]
    assert report.casts_before == count == before[keep_io_types]
    assert report.casts_after == after[keep_io_types]
    x = np.random.default_rng(0).random((4, 4), dtype=np.float32)
    session = ort.InferenceSession(str(tmp_path / "out.onnx"))
    exact = ort.InferenceSession(model.SerializeToString())
    given = x if keep_io_types else x.astype(np.float16)
    for c in (np.array(True), np.array(False)):
        for ours, expected in zip(
            session.run(None, {"x": given, "c": c}), exact.run(None, {"x": x, "c": c}), strict=True
        ):
            assert ours.dtype == given.dtype
            np.testing.assert_allclose(ours, expected, atol=0.02)  # some twenty float16 steps at most of size 4
    assert clean_casts(tmp_path / "out.onnx", tmp_path / "again.onnx").rules == {}
    assert (tmp_path / "again.onnx").read_bytes() == (tmp_path / "out.onnx").read_bytes()


def graphs(graph: onnx.GraphProto) -> list[onnx.GraphProto]:
    bodies = [attribute.g for node in graph.node for attribute in node.attribute if attribute.HasField("g")]
    return [graph, *(inner for body in bodies for inner in graphs(body))]


def test_a_large_constant_may_keep_its_cast(tmp_path: Path) -> None:
    text = HEAD + "(float16[2] x) => (float16[2] y) <float[2] w = {1.5, 2.5}> { h = Cast<to = 10>(w) y = Add(x, h) }"
    assert clean_casts(saved(tmp_path, text), tmp_path / "out.onnx", fold_max_bytes=7).casts_after == 1
    assert clean_casts(saved(tmp_path, text), tmp_path / "out.onnx", fold_max_bytes=8).casts_after == 0


def test_a_file_is_not_cleaned_over_itself(tmp_path: Path) -> None:
    path = saved(tmp_path)
    before = path.read_bytes()
    with raises("would-overwrite", "out_path", "model_path", path):
        clean_casts(path, path)
    assert path.read_bytes() == before and [file.name for file in tmp_path.iterdir()] == ["in.onnx"]


def test_repeated_nodes_beside_external_data(tmp_path: Path) -> None:
    broken = onnx.parser.parse_model(HEAD + "(float[2] x) => (float[2] y) { c = Cast<to = 1>(w) y = Add(x, c) }")
    broken.graph.node.insert(0, broken.graph.node[0])
    broken.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1, 2], np.float16), "w"))
    options = {"save_as_external_data": True, "location": "weights.bin", "size_threshold": 0}
    onnx.save(broken, tmp_path / "in.onnx", **options)
    report = clean_casts(tmp_path / "in.onnx", tmp_path / "out.onnx")
    assert (report.casts_before, report.casts_after) == (2, 0)
    (weight,) = onnx.load(tmp_path / "out.onnx").graph.initializer
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(weight), np.array([1, 2], np.float32))


def test_two_producers_of_one_name_are_an_error(tmp_path: Path) -> None:
    broken = onnx.parser.parse_model(HEAD + "(float[2] x) => (float[2] y) { a = Relu(x) y = Neg(a) }")
    broken.graph.node[1].output[0] = "a"
    with raises("model-invalid", "'a'", "Relu", "Neg"):
        clean_casts(saved(tmp_path, broken), tmp_path / "out.onnx")


def test_a_cycle_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    text = HEAD + "(float[2] x) => (float[2] y) { [one] a = Add(x, b) [two] b = Cast<to = 1>(a) [end] y = Relu(b) }"
    with raises("graph-cycle") as caught:
        clean_casts(saved(tmp_path, text), tmp_path / "out.onnx")
    assert any(name in str(caught.value) for name in ("'one'", "'two'"))
    assert not (tmp_path / "out.onnx").exists()


@pytest.mark.parametrize(
    ("content", "code"), [(b"", "file-unreadable"), (b"not a model", "file-unreadable"), (None, "file-missing")]
)
def test_files_that_are_no_models(tmp_path: Path, content: bytes | None, code: str) -> None:
    if content is not None:
        (tmp_path / "in.onnx").write_bytes(content)
    with raises(code, "in.onnx"):
        clean_casts(tmp_path / "in.onnx", tmp_path / "out.onnx")


def test_functions_are_inlined(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 17, "own": 1]> g (float[2] x) => (float[2] y)
        { a = Cast<to = 1>(x)  y = own.twice(a) }
        <opset_import: ["": 17], domain: "own"> twice (p) => (r) { q = Cast<to = 10>(p)  r = Cast<to = 1>(q) }"""
    assert clean_casts(saved(tmp_path, text), tmp_path / "out.onnx").casts_before == 3
    assert not onnx.load(tmp_path / "out.onnx").functions


def nodes(*specs: tuple[str, str, str]) -> onnx.GraphProto:
    made = [onnx.helper.make_node(op, [source], [target], name="n") for op, source, target in specs]
    return onnx.helper.make_graph(made, "g", [], [])


def test_repeated_nodes_are_dropped() -> None:
    graph = nodes(("Relu", "x", "a"), ("Relu", "x", "a"), ("Neg", "a", "y"), ("Relu", "x", "a"))
    assert drop_repeated_nodes(graph) == {"Relu": 2}
    assert [node.op_type for node in graph.node] == ["Relu", "Neg"]


def test_different_nodes_with_one_output_are_an_error() -> None:
    with raises("model-invalid", "'n' (Relu)", "'n' (Neg)", "'a'"):
        drop_repeated_nodes(nodes(("Relu", "x", "a"), ("Neg", "x", "a")))
