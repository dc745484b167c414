"""AutoCast's command lines, as its users have them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from tests.messages import expect
from truehalf.cli.app import run as truehalf
from truehalf.cli.autocast import parser

TEXT = """<ir_version: 8, opset_import: ["" : 12]> g (float[2,4] x) => (float[2,4] y)
{ ["/m"] h = MatMul(x, w) ["/big"] b = Mul(h, k) ["/e"] e = Exp(h) ["/y"] y = Add(b, e) }"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    proto = onnx.parser.parse_model(TEXT)
    for name, array in (("w", 0.1 * np.eye(4)), ("k", np.full(4, 600.0))):
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array.astype(np.float32), name))
    onnx.save(proto, tmp_path / "model.onnx")
    np.savez(tmp_path / "data.npz", x=np.full((2, 4), 50, np.float32))
    return tmp_path / "model.onnx"


def kinds(path: Path) -> dict[str, str]:
    """Types of what each node writes, by the node's name."""
    proto = onnx.shape_inference.infer_shapes(onnx.load(path))
    of = {value.name: value.type.tensor_type.elem_type for value in [*proto.graph.value_info, *proto.graph.output]}
    name = onnx.TensorProto.DataType.Name
    return {node.name: name(of[node.output[0]]) for node in proto.graph.node if node.op_type != "Cast"}


def test_its_defaults(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert truehalf(["autocast", "--onnx_path", str(model)]) == 0
    made = model.with_name("model.fp16.onnx")
    proto = onnx.load(made)
    assert proto.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT16, "keep_io_types is off"
    assert proto.opset_import[0].version == 13
    assert set(kinds(made).values()) == {"FLOAT16"}
    expect(capsys.readouterr().out, "needs-value", "truehalf verify")


def test_its_lists_short_forms_and_ranges(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = model.with_name("out.onnx")
    line = ["--onnx_path", str(model), "--output_path", str(out), "-d", str(model.with_name("data.npz"))]
    assert truehalf(["autocast", *line, "--keep_io_types"]) == 0
    assert kinds(out)["/big"] == "FLOAT", "3000 > data_max"
    assert truehalf(["autocast", *line, "-ope", "Exp", "MatMul", "-ne", "/y$", "-ni", "/big"]) == 0
    found = kinds(out)
    assert (found["/e"], found["/m"], found["/big"]) == ("FLOAT", "FLOAT", "FLOAT16")
    assert truehalf(["autocast", *line, "--data_max", "1e4", "--opset", "17", "--log_level", "ERROR"]) == 0
    assert kinds(out)["/big"] == "FLOAT16" and onnx.load(out).opset_import[0].version == 17
    assert truehalf(["autocast", *line, "--opset", "11", "--use_standalone_type_inference"]) == 0
    assert onnx.load(out).opset_import[0].version == 12, "models are only raised"
    expect(capsys.readouterr().out, None, "opset 12", "11")


def test_names_match_from_their_start_as_there(model: Path) -> None:
    out = model.with_name("out.onnx")
    line = ["--onnx_path", str(model), "--output_path", str(out)]
    assert truehalf(["autocast", *line, "-ne", "e", "m$"]) == 0
    assert kinds(out)["/e"] == kinds(out)["/m"] == "FLOAT16"
    assert truehalf(["autocast", *line, "-ne", "/e|/m"]) == 0
    assert kinds(out)["/e"] == kinds(out)["/m"] == "FLOAT"


def test_its_limits(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = model.with_name("out.onnx")
    line = ["--onnx_path", str(model), "--output_path", str(out), "-d", str(model.with_name("data.npz"))]
    assert truehalf(["autocast", *line, "--data_max", "inf", "--init_max", "inf"]) == 0
    assert kinds(out)["/big"] == "FLOAT16"
    assert truehalf(["autocast", *line, "--max_depth_of_reduction", "1"]) == 0
    assert kinds(out)["/m"] == "FLOAT"
    for option in ("--data_max", "--init_max"):
        assert truehalf(["autocast", *line, option, "1e5"]) == 2
        expect(capsys.readouterr().err, "out-of-range", option, "100000")


def test_every_argument_of_its_command_line() -> None:
    """Names, short forms, defaults and lists of modelopt.onnx.autocast 0.47.0."""
    found = {
        action.dest: (sorted(action.option_strings, key=len)[:-1], action.default, action.nargs)
        for action in parser()._actions
        if action.dest != "help"
    }
    assert found == {
        "onnx_path": ([], None, None),
        "output_path": ([], None, None),
        "low_precision_type": (["-t"], "fp16", None),
        "calibration_data": (["-d"], None, None),
        "nodes_to_exclude": (["-ne"], [], "*"),
        "op_types_to_exclude": (["-ope"], [], "*"),
        "nodes_to_include": (["-ni"], [], "*"),
        "op_types_to_include": (["-opi"], [], "*"),
        "data_max": ([], 512.0, None),
        "init_max": ([], 65504.0, None),
        "init_conversion_max_bytes": ([], None, None),
        "max_depth_of_reduction": ([], None, None),
        "keep_io_types": ([], False, 0),
        "log_level": ([], "INFO", None),
        "providers": ([], ["cpu"], "+"),
        "trt_plugins": ([], [], "+"),
        "trt_plugins_precision": ([], [], "+"),
        "opset": ([], None, None),
        "use_standalone_type_inference": ([], False, 0),
    }
    assert all(max(action.option_strings, key=len) == f"--{action.dest}" for action in parser()._actions)


@pytest.mark.parametrize(
    ("flags", "fact"),
    [
        (["-t", "bf16"], "bf16"),
        (["--providers", "cuda:0", "cpu"], "cuda:0"),
        (["--trt_plugins", "x.so"], "--trt_plugins"),
        (["--trt_plugins_precision", "Op:fp16"], "--trt_plugins_precision"),
    ],
)
def test_what_is_not_done_is_refused_by_name(
    model: Path, flags: list[str], fact: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert truehalf(["autocast", "--onnx_path", str(model), *flags]) == 2
    expect(capsys.readouterr().err, "not-supported", fact)
    assert not model.with_name("model.fp16.onnx").exists()


def test_anything_else_is_a_usage_error(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["--onnx_path", str(model), "--no_such_flag"]):
        assert truehalf(["autocast", *words]) == 2
    assert truehalf(["autocast", "--help"]) == 0
    expect(capsys.readouterr().out, None, "--op_types_to_exclude", "-ope")
