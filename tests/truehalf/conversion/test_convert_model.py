"""The FP16 conversion of a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.measuring.converted import to_fp16
from tests.messages import expect, raises
from tests.small_models import FLOAT, TEXT, measured, node_types, saved
from truehalf.float16 import MAX
from truehalf.ir.model_file import PRECISION_KEY, load_model, save_model


def test_a_call_without_options_does_what_the_chain_does(tmp_path: Path) -> None:
    """safety_factor 2 and init_max 65504 from conf/precision/fp16.yaml, inputs and outputs float32."""
    text = TEXT.replace("0.5, 3.0", "0.5, 70000.0")
    report = to_fp16(saved(tmp_path, text), tmp_path / "out.onnx", ranges=measured(b=4e4, a=512.0))
    assert report.verdicts == {"overflow": 2, "init_max": 1}
    assert [row["rule"] for row in report.fp32_nodes] == ["init_max", "overflow", "overflow"]
    expect(report.fp32_nodes[0]["reason"], None, "'w'", "7e+04", "init_max", 65504)
    graph = onnx.load(tmp_path / "out.onnx").graph
    assert graph.input[0].type.tensor_type.elem_type == graph.output[0].type.tensor_type.elem_type == FLOAT


def test_finfo_max_anchors_give_no_inf(tmp_path: Path) -> None:
    """RT-DETR's anchors: a Where on a constant of 3.4e38. Weights and ranges pin it, each alone."""
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[2] x, bool[2] c) => (float[2] y)
        <float[2] w = {1.0, 3.4028235e38}> { a = Where(c, x, w)  y = Sigmoid(a) }"""
    ranges = measured(x=1.0, a=3.4e38, y=1.0)
    for options in ({}, {"ranges": ranges}, {"ranges": ranges, "init_max": None}):
        to_fp16(saved(tmp_path, text, ["where", "sigmoid"]), tmp_path / "out.onnx", **options)
        assert node_types(tmp_path / "out.onnx")["where"] == FLOAT
    to_fp16(saved(tmp_path, text, ["where", "sigmoid"]), tmp_path / "out.onnx", op_include_list=["Where"])
    (weight,) = onnx.load(tmp_path / "out.onnx").graph.initializer
    assert onnx.numpy_helper.to_array(weight).tolist() == [1, 65504]


def test_without_keep_io_types_the_io_spec_says_float16(tmp_path: Path) -> None:
    model = load_model(saved(tmp_path))
    io = {"inputs": [{"name": "images", "dtype": "float32"}], "outputs": [{"name": "logits", "dtype": "float32"}]}
    model.metadata_props.update({"truehalf.io_spec": json.dumps(io), "other": "kept"})
    save_model(model, tmp_path / "in.onnx")
    to_fp16(tmp_path / "in.onnx", tmp_path / "out.onnx", keep_io_types=False)
    out = load_model(tmp_path / "out.onnx")
    spec = json.loads(out.metadata_props["truehalf.io_spec"])
    assert {entry["dtype"] for entry in [*spec["inputs"], *spec["outputs"]]} == {"float16"}
    assert out.metadata_props["other"] == "kept"
    assert out.graph.inputs[0].dtype.name == "FLOAT16"
    to_fp16(tmp_path / "in.onnx", tmp_path / "out.onnx")
    assert load_model(tmp_path / "out.onnx").metadata_props["truehalf.io_spec"] == json.dumps(io)


def test_two_runs_give_identical_bytes(tmp_path: Path) -> None:
    source = saved(tmp_path)
    for name in ("1.onnx", "2.onnx"):
        to_fp16(source, tmp_path / name, op_block_list=["Relu"])
    assert (tmp_path / "1.onnx").read_bytes() == (tmp_path / "2.onnx").read_bytes()


def test_a_file_of_ours_is_passed_on_unchanged(tmp_path: Path) -> None:
    to_fp16(saved(tmp_path), tmp_path / "1.onnx", op_block_list=["Relu"])
    report = to_fp16(tmp_path / "1.onnx", tmp_path / "2.onnx")
    assert report.status == "skipped"
    expect(report.reason, None, load_model(tmp_path / "1.onnx").metadata_props[PRECISION_KEY])
    assert (tmp_path / "2.onnx").read_bytes() == (tmp_path / "1.onnx").read_bytes()


def test_a_file_that_is_fp16_already_is_passed_on(tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["": 17]> g (float16[2] x) => (float16[2] y) { y = Relu(x) }'
    report = to_fp16(saved(tmp_path, text, ["relu"]), tmp_path / "out.onnx")
    assert report.status == "skipped"
    expect(report.reason, None, "FP16", "float16", "float32")


@pytest.mark.parametrize("unread", [{"calibration": {"x": np.ones(2, "f")}}, {"ranges": {"tensors": {"x": 1}}}])
def test_what_is_passed_on_needs_neither_samples_nor_ranges(unread: dict[str, Any], tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["": 17]> g (float16[2] x) => (float16[2] y) { y = Relu(x) }'
    source = saved(tmp_path, text, ["relu"])
    assert to_fp16(source, tmp_path / "out.onnx", **unread).status == "skipped"


def test_weights_listed_among_the_inputs_are_no_inputs_that_samples_miss(tmp_path: Path) -> None:
    text = """<ir_version: 3, opset_import: ["": 9]> g (float[2, 2] x, float[2, 2] w) => (float[2, 2] y)
        <float[2, 2] w = {1.0, 2.0, 3.0, 4.0}> { y = MatMul(x, w) }"""
    source = saved(tmp_path, text, ["mul"])
    assert not to_fp16(source, tmp_path / "out.onnx", calibration={"x": np.ones((2, 2), "f")}).not_done
    with raises("wrong-feeds") as caught:
        to_fp16(source, tmp_path / "out.onnx", calibration={"z": np.ones((2, 2), "f")})
    assert "'w'" not in str(caught.value)


def test_float32_parts_that_the_file_does_not_declare_are_converted(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float16[2] x) => (float16[2] y)
        { a = Cast<to = 1>(x)  b = Exp(a)  c = Exp(b)  y = Cast<to = 10>(c) }"""
    report = to_fp16(saved(tmp_path, text, ["up", "one", "two", "down"]), tmp_path / "out.onnx")
    assert (report.status, report.fp16_fraction) == ("done", 1.0)


FP16_WITH_A_BODY = """<ir_version: 8, opset_import: ["": 17]> g (float16[512] x, bool c) => (float16[512] y)
    { y = If(c) <then_branch = t () => (float16[512] u) <float16[512] w> { u = Add(x, w) },
                 else_branch = e () => (float16[512] v) { v = Relu(x) }> }"""


def test_a_file_with_external_data_in_a_body_is_passed_on_whole(tmp_path: Path) -> None:
    proto = onnx.parser.parse_model(FP16_WITH_A_BODY)
    weight = onnx.numpy_helper.from_array(np.arange(512, dtype=np.float16), "w")
    (tmp_path / "source").mkdir()
    (tmp_path / "source/w.bin").write_bytes(weight.raw_data)
    onnx.external_data_helper.set_external_data(weight, "w.bin")
    weight.ClearField("raw_data")
    body = proto.graph.node[0].attribute[0].g
    del body.initializer[:]
    body.initializer.append(weight)
    onnx.save(proto, tmp_path / "source/in.onnx")
    assert to_fp16(tmp_path / "source/in.onnx", tmp_path / "out.onnx").status == "skipped"
    (passed,) = onnx.load(tmp_path / "out.onnx").graph.node[0].attribute[0].g.initializer
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(passed), np.arange(512, dtype=np.float16))


@pytest.mark.parametrize(
    ("source", "fact"), [("def rule(:", "SyntaxError"), ("1 / 0", "ZeroDivisionError"), ("x = 1", "'rule'")]
)
def test_a_custom_rule_that_cannot_be_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, fact: str
) -> None:
    name = f"rules_{fact.lower().strip(chr(39))}"
    (tmp_path / f"{name}.py").write_text(source + "\n")
    monkeypatch.syspath_prepend(tmp_path)
    with raises("function-fails", "custom_rule", name, fact):
        to_fp16(saved(tmp_path), tmp_path / "out.onnx", custom_rule=f"{name}:rule")


def test_calibration_goes_up_to_a_custom_operator(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 17, "com.acme": 1]> g (float[2] x) => (float[2] y)
        <float[2] b> { a = Exp(x)  b = com.acme.Op(a)  y = Exp(b) }"""
    source = saved(tmp_path, text, ["one", "op", "two"])
    for given in ({"calibration": {"x": np.ones(2, np.float32)}}, {"ranges": measured(x=1.0, a=3.0)}):
        report = to_fp16(source, tmp_path / "out.onnx", placement="eager", **given)
        assert {row["node"]: row["rule"] for row in report.fp32_nodes} == {
            "op": "no_fp16_kernel",
            "two": "unmeasured",
        }
        expect(" ".join(report.warnings), "plugin-not-run", "'op'")
    report = to_fp16(source, tmp_path / "out.onnx", placement="eager", node_include_list=["op|two"], **given)
    assert report.fp32_nodes == []


def test_fp16_parts_of_others_are_kept_and_the_rest_is_converted(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[2,2] x) => (float[2,2] y) <float16[2,2] w = {1,2,3,4}>
        { a = Cast<to = 10>(x) b = MatMul(a, w) c = Cast<to = 1>(b) y = Gemm(c, x) }"""
    report = to_fp16(saved(tmp_path, text, ["cast", "matmul", "back", "gemm"]), tmp_path / "out.onnx")
    assert (report.fp16_fraction, report.model["float_nodes"]) == (1.0, 2)


def test_external_data_is_read_and_converted(tmp_path: Path) -> None:
    proto = onnx.load(saved(tmp_path))
    options = {"save_as_external_data": True, "location": "weights.bin", "size_threshold": 0}
    onnx.save(proto, tmp_path / "big.onnx", **options)
    to_fp16(tmp_path / "big.onnx", tmp_path / "out.onnx")
    (weight,) = onnx.load(tmp_path / "out.onnx").graph.initializer
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(weight), np.array([[1, -2], [0.5, 3]], np.float16))


def test_costs_are_weighed_at_the_shape_of_the_samples(tmp_path: Path) -> None:
    samples = {"images": np.ones((1000, 2), np.float32)}
    options = {"op_block_list": ["Relu"]}
    small = to_fp16(
        saved(tmp_path), tmp_path / "out.onnx", calibration=samples, input_shapes={"images": [1, 2]}, **options
    )
    asked = to_fp16(saved(tmp_path), tmp_path / "out.onnx", calibration=samples, **options)
    stated = to_fp16(saved(tmp_path), tmp_path / "out.onnx", input_shapes={"images": [1000, 2]}, **options)
    assert asked.costs["naive"] == stated.costs["naive"] != small.costs["naive"]


def test_an_old_opset_is_raised_and_a_target_below_is_a_warning(tmp_path: Path) -> None:
    old = saved(tmp_path, '<ir_version: 3, opset_import: ["": 6]> g (float[2] x) => (float[2] y) { y = Relu(x) }')
    warning, nothing = to_fp16(old, tmp_path / "out.onnx").warnings
    expect(warning, None, 6, 7)
    expect(nothing, "nothing-in-fp16", 1)
    assert load_model(tmp_path / "out.onnx").graph.opset_imports[""] == 7
    (warning,) = to_fp16(saved(tmp_path), tmp_path / "out.onnx", opset=13).warnings
    expect(warning, None, 17, 13)
    assert load_model(tmp_path / "out.onnx").graph.opset_imports[""] == 17
    to_fp16(saved(tmp_path), tmp_path / "out.onnx", opset=20)
    assert load_model(tmp_path / "out.onnx").graph.opset_imports[""] == 20


def test_a_cycle_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { a = Add(x, y) y = Relu(a) }'
    with raises("graph-cycle") as caught:
        to_fp16(saved(tmp_path, text, ["adder", "relu"]), tmp_path / "out.onnx")
    assert any(name in str(caught.value) for name in ("'adder'", "'relu'"))
    assert not (tmp_path / "out.onnx").exists()


def test_the_limit_that_conf_states_is_float16s() -> None:
    assert float(np.finfo(np.float16).max) == MAX


def test_operators_of_plugins_stay_fp32_unless_told(tmp_path: Path) -> None:
    """What an operator of another domain computes in FP16 nobody knows but those who wrote it."""
    text = """<ir_version: 8, opset_import: ["": 17, "com.acme": 1]> g (float["n", 2] x) => (float["n", 2] y)
        <float["n", 2] a, float["n", 2] b, float[2,2] w = {1.0, -2.0, 0.5, 3.0}>
        { a = MatMul(x, w)  b = com.acme.Mine(a)  y = MatMul(b, w) }"""
    source, out = saved(tmp_path, text, ["first", "mine", "last"]), tmp_path / "out.onnx"
    report = to_fp16(source, out, placement="eager")
    (row,) = report.fp32_nodes
    assert row["node"] == "mine"
    expect(row["reason"], None, "com.acme::Mine")
    for told in ({"op_include_list": ["com.acme::Mine"]}, {"node_include_list": ["^mine$"]}):
        assert to_fp16(source, out, placement="eager", **told).fp32_nodes == []
