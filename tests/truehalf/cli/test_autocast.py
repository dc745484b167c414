"""AutoCast's command lines, as its users have them."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from tests.messages import expect
from truehalf.cli.app import run as truehalf
from truehalf.cli.autocast import parser
from truehalf.codes import codes_in
from truehalf.data.noise import feed_of_noise

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
    expect(capsys.readouterr().out, None, "truehalf verify")


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
    assert truehalf(["autocast", *line, "--opset", "13", "--use_standalone_type_inference"]) == 0
    assert onnx.load(out).opset_import[0].version == 13


@pytest.mark.parametrize("own", [12, 15, 17])
@pytest.mark.parametrize("asked", [-1, 0, 1, 11, 12, 13, 14, 16, 99])
def test_an_opset_is_raised_or_refused(own: int, asked: int, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    proto = onnx.load(model)
    proto.opset_import[0].version = own
    onnx.save(proto, model)
    code = truehalf(["autocast", "--onnx_path", str(model), "--opset", str(asked)])
    made = model.with_name("model.fp16.onnx")
    if max(13, own) <= asked < 99:
        assert code == 0 and onnx.load(made).opset_import[0].version == asked
    else:
        assert code == 2 and not made.exists()
        expect(capsys.readouterr().err, "wrong-opset", asked)


# Largest |x| of the FP32 tensor r = x * k on a value of -1 to 1 is k: beyond data_max (512) it stays FP32.
DRAWN = {
    "float": ("float[2,4] x", "r = Mul(x, k)", 600.0, "FLOAT"),
    "float, small": ("float[2,4] x", "r = Mul(x, k)", 400.0, "FLOAT16"),
    "symbolic axes": ("float[N,M] x", "f = Neg(x) r = Mul(f, k)", 1e4, "FLOAT"),
    "scalar": ("float x", "r = Mul(x, k)", 1e4, "FLOAT"),
    "no batch": ("float[0,4] x", "r = Mul(x, k)", 600.0, "FLOAT16"),
    "integers": ("int64[64] x", "f = Cast<to=1>(x) r = Mul(f, k)", 600.0, "FLOAT"),
    "unsigned": ("uint8[64] x", "f = Cast<to=1>(x) r = Mul(f, k)", 600.0, "FLOAT"),
    "bools are true": ("bool[2] x", "f = Cast<to=1>(x) r = Mul(f, k)", 600.0, "FLOAT"),
    "two inputs": ("float[3] x, bool[3] z", "f = Cast<to=1>(z) q = Mul(f, x) r = Mul(q, k)", 1e4, "FLOAT"),
}


@pytest.mark.parametrize("case", DRAWN)
def test_without_data_it_draws_an_input(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inputs, nodes, factor, kind = DRAWN[case]
    head = f'<ir_version: 8, opset_import: ["" : 17]> g ({inputs}) => (float y)'
    proto = onnx.parser.parse_model(f"{head} {{ {nodes} y = ReduceMax<keepdims=0>(r) }}")
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(factor), "k"))
    for node in proto.graph.node:
        node.name = node.output[0]
    onnx.save(proto, tmp_path / "m.onnx")
    made = [tmp_path / "one.onnx", tmp_path / "two.onnx"]
    for path in made:
        assert truehalf(["autocast", "--onnx_path", str(tmp_path / "m.onnx"), "--output_path", str(path)]) == 0
    assert kinds(made[0])["r"] == kind and made[0].read_bytes() == made[1].read_bytes()
    expect(capsys.readouterr().err, None, "--calibration_data")


def test_what_cannot_be_drawn_asks_for_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for index, text in enumerate(
        (
            "g (string[2] x, float[2] f) => (float[2] y) { y = Relu(f) i = Identity(x) }",
            "g (seq(float[2]) x, float[2] f) => (float[2] y) { y = Relu(f) i = Identity(x) }",
            "g (float[2,4] f, float[3,5] e) => (float[2,5] y) { y = MatMul(f, e) }",
        )
    ):
        proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
        onnx.save(proto, tmp_path / "m.onnx")
        assert truehalf(["autocast", "--onnx_path", str(tmp_path / "m.onnx")]) == 2, index
        assert codes_in(capsys.readouterr().err), index
        assert not (tmp_path / "m.fp16.onnx").exists()


@pytest.mark.parametrize("seed", range(6))
def test_drawn_inputs_are_autocasts(seed: int) -> None:
    """RandomState(1), in the order of the inputs, for inputs drawn by a generator."""
    draw = random.Random(seed)
    types = {"float": np.float32, "float16": np.float16, "int32": np.int32, "int64": np.int64, "bool": np.bool_}
    chosen = [(draw.choice(list(types)), [draw.randint(0, 4) for _ in range(draw.randint(0, 4))]) for _ in range(4)]
    inputs = ", ".join(f"{name}{shape if shape else ''} x{i}" for i, (name, shape) in enumerate(chosen))
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g ({inputs}) => () {{ }}')
    found, rng = feed_of_noise(ir.from_proto(proto)), np.random.RandomState(1)
    for i, (name, shape) in enumerate(chosen):
        if "float" in name:
            expected = np.asarray(rng.random_sample(size=shape) * 2.0 - 1.0).astype(types[name])
        else:
            low = {"bool": 1}.get(name, -1)
            expected = np.asarray(rng.randint(low=low, high=2, size=shape, dtype=types[name]))
        np.testing.assert_array_equal(found[f"x{i}"], expected, strict=True)


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
        "json": ([], None, None),  # ours, as in every command
        "quiet": ([], False, 0),
        "verbose": ([], False, 0),
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
