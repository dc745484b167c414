"""truehalf engine: a file or a plan, compiled where there is no GPU."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from tests.measuring.attention_graphs import Form, attention
from tests.messages import expect
from truehalf.cli.app import run as truehalf
from truehalf.runtime.tensorrt.versions import RTX

pytest.importorskip(RTX, reason="TensorRT for RTX has no wheel for this machine")

MODEL = """<ir_version: 8, opset_import: ["": 17]> g ({dtype}[{sides}] x) => ({dtype}[{sides}] y) {{
  a = Relu(x)
  y = Add(a, a)
}}"""


def model(folder: Path, sides: str = "N,8", dtype: str = "float16") -> Path:
    path = folder / "model.onnx"
    made = onnx.parser.parse_model(MODEL.format(sides=sides, dtype=dtype))
    for node in made.graph.node:
        node.name = f"/{node.op_type}"
    onnx.save(made, path)
    return path


def run(*arguments: object) -> int:
    return truehalf(["engine", *map(str, arguments)])


@pytest.mark.parametrize(("dtype", "declared"), [("float16", "fp16"), ("float", "fp32")])
def test_a_file_is_compiled_beside_itself(dtype: str, declared: str, tmp_path: Path) -> None:
    assert run(model(tmp_path, dtype=dtype), "--target", "sm86", "--target", "sm120") == 0
    report = json.loads((tmp_path / "model_engine" / "engine.json").read_text())
    assert (report["status"], report["declared"]) == ("compiled", declared)
    assert report["compiled"]["targets"] == ["sm86", "sm120"] and (tmp_path / "model_engine/model.rtx.engine").exists()
    assert report["plan"]["profiles"] == [{"x": {"min": [1, 8], "opt": [1, 8], "max": [8, 8]}}]
    assert run(tmp_path / "model_engine" / "plan.json", "--out", tmp_path / "again") == 0
    assert json.loads((tmp_path / "again" / "engine.json").read_text())["status"] == "compiled"


def test_shapes_that_are_left_out_are_the_nearest_that_are_given(tmp_path: Path) -> None:
    path = model(tmp_path, "N,C")
    assert run(path, "--min-shape", "x:1x4", "--max-shape", "x:2x16", "--quiet") == 0
    report = json.loads((tmp_path / "model_engine" / "engine.json").read_text())
    assert report["plan"]["profiles"] == [{"x": {"min": [1, 4], "opt": [2, 16], "max": [2, 16]}}]


@pytest.mark.parametrize(
    ("sides", "arguments", "code"),
    [
        ("N,C", (), "needs-value"),
        ("N,8", ("--opt-shape", "y:1x8"), "wrong-name"),
        ("N,8", ("--opt-shape", "1x8"), "bad-syntax"),
        ("N,8", ("--opt-shape", "x:1x9"), "wrong-plan"),
        ("N,8", ("--min-shape", "x:4x8", "--opt-shape", "x:2x8"), "wrong-plan"),
        ("N,8", ("--target", "sm86", "--target", "sm86"), "given-twice"),
    ],
)
def test_what_does_not_fit(
    sides: str, arguments: tuple[str, ...], code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(model(tmp_path, sides), *arguments) == 2
    expect(capsys.readouterr().err, code)


def test_a_file_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model.onnx").write_bytes(b"none")
    assert run(tmp_path / "model.onnx") == 2
    assert run(tmp_path / "missing.onnx") == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(("wide", "code"), [(("qk", "scale"), 1), (("softmax", "pv"), 1), (("softmax",), 0)])
def test_a_gate_that_fails_is_the_exit_code(
    wide: tuple[str, ...], code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(attention(Form(), wide), tmp_path / "model.onnx")
    assert run(tmp_path / "model.onnx") == code
    if code:
        expect(capsys.readouterr().out, "engine-gate", "softmax.0")
