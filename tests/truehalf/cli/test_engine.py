"""truehalf engine: a file, compiled where there is no GPU."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.measuring.attention_graphs import Form, attention
from tests.messages import expect
from tests.tiers import compiled
from truehalf.cli.app import run as truehalf
from truehalf.errors import StageError

pytestmark = compiled

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


@pytest.mark.parametrize("wide", [("qk", "scale"), ("softmax", "pv")])
def test_a_gate_that_is_not_verified_is_said(
    wide: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(attention(Form(), wide), tmp_path / "model.onnx")
    assert run(tmp_path / "model.onnx") == 3
    expect(capsys.readouterr().out, None, "engine.gates.fused_attention", "softmax.0")


@pytest.mark.parametrize(
    ("body", "code", "node"),
    [
        ("c = IsInf(x) y = Where(c, x, fill)", 1, "/Where"),
        ("r = Relu(x) n = NonZero(r) c = Cast<to = 10>(n) y = ReduceSum(c)", 3, "/NonZero"),
    ],
)
def test_a_file_that_is_refused(
    body: str, code: int, node: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f"g (float16[2,8] x) => (float16[M,K] y) <float fill = {{-1.0}}> {{ {body} }}"
    made = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')
    for each in made.graph.node:
        each.name = f"/{each.op_type}"
    onnx.save(made, tmp_path / "model.onnx")
    assert run(tmp_path / "model.onnx") == code
    expect(capsys.readouterr().out, None, node, "not verified" if code == 3 else "failed")


def test_a_target_without_a_compiler(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(model(tmp_path), "--target", "sm87") == 3
    expect(
        capsys.readouterr().out.replace("\n", " "), None, "no compiler here covers sm87", "trtexec --onnx=model.onnx"
    )


def test_no_compiler_at_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("truehalf.runtime.machine.package_version", lambda module: None)
    assert run(model(tmp_path), "--target", "sm89") == 3
    expect(capsys.readouterr().out.replace("\n", " "), None, "pip install 'truehalf[rtx]'", "not verified")


def test_gates_can_be_switched_off(tmp_path: Path) -> None:
    onnx.save(attention(Form(), ("qk", "scale")), tmp_path / "model.onnx")
    assert run(tmp_path / "model.onnx", "--no-gates") == 0
    report = json.loads((tmp_path / "model_engine" / "engine.json").read_text())
    assert report["gates"] == [] and report["compiled"]["attention_not_fused"]


def test_a_plan_is_no_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plan.json").write_text("{}")
    assert run(tmp_path / "plan.json") == 2
    assert "Traceback" not in capsys.readouterr().err


# --- truehalf convert --engine ----------------------------------------------------------------------------------------


def convolution() -> onnx.ModelProto:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[N,3,8,8] x) => (float[N,4,8,8] y)
    { ["conv"] c = Conv<pads = [1,1,1,1]>(x, w) ["relu"] y = Relu(c) }"""
    made = onnx.parser.parse_model(text)
    made.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((4, 3, 3, 3), np.float32), "w"))
    return made


def convert(*arguments: object) -> int:
    return truehalf(["convert", *map(str, arguments)])


@pytest.mark.parametrize(
    ("out", "targets"), [("model_fp16.onnx", ["sm86"]), ("a.onnx", ["sm89", "sm120"]), ("b.x.onnx", [])]
)
def test_a_conversion_compiles_what_it_wrote(
    out: str, targets: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [flag for target in targets for flag in ("--target", target)]
    place = tmp_path / out
    onnx.save(convolution(), tmp_path / "model.onnx")
    code = convert(tmp_path / "model.onnx", "-o", place, "--engine", *given, "--json", tmp_path / "r.json")
    assert code == 3, "no samples: the file is not verified"
    folder = tmp_path / f"{place.stem}_engine"
    written = json.loads((folder / "engine.json").read_text())
    engine = json.loads((tmp_path / "r.json").read_text())["engine"]
    assert engine["compiled"] == written["compiled"] and engine["compiled"]["targets"] == targets
    assert (engine["status"], engine["declared"]) == ("compiled", "fp16") and (folder / "model.rtx.engine").exists()
    block = capsys.readouterr().out.partition("\nengine:\n")[2]
    expect(block, None, "compiled", folder / "engine.json", folder / "model.rtx.engine", "not verified")


def test_an_engine_that_fails_its_gates_fails_the_conversion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("truehalf.engines.compiled._in_fp32", lambda layers, half: (half, half))
    onnx.save(convolution(), tmp_path / "model.onnx")
    assert convert(tmp_path / "model.onnx", "--engine") == 1
    expect(capsys.readouterr().out, "beyond-gate", "conv")
    assert convert(tmp_path / "model.onnx", "--engine", "--no-gates") == 3


@pytest.mark.parametrize(
    ("sides", "arguments", "code"),
    [
        ("N,C", ("--engine",), "needs-value"),
        ("N,8", ("--engine", "--opt-shape", "y:1x8"), "wrong-name"),
        ("N,8", ("--engine", "--min-shape", "x"), "bad-syntax"),
        ("N,8", ("--engine", "--min-shape", "x:4x8", "--opt-shape", "x:2x8"), "wrong-plan"),
        ("N,8", ("--target", "sm86"), "needs-value"),
        ("N,8", ("--no-gates",), "needs-value"),
    ],
)
def test_what_does_not_fit_is_said_before_the_conversion(
    sides: str, arguments: tuple[str, ...], code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert convert(model(tmp_path, sides, "float"), *arguments) == 2
    expect(capsys.readouterr().err, code)
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]


def test_an_engine_that_is_refused_does_not_hide_the_conversion(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise StageError("bad-options", "it is refused")

    monkeypatch.setattr("truehalf.engines.build.build_engine", refuse)
    assert convert(model(tmp_path, dtype="float"), "--engine", "--json", tmp_path / "r.json") == 2
    shown = capsys.readouterr()
    expect(shown.err, "bad-options")
    assert "engine:\n" in shown.out and json.loads((tmp_path / "r.json").read_text())["engine"]["status"] == "failed"
    assert (tmp_path / "model_fp16.onnx").exists()


def test_a_file_that_failed_its_verification_is_not_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("truehalf.cli.convert._verdict", lambda *_: ("failed", None))
    onnx.save(convolution(), tmp_path / "model.onnx")
    assert convert(tmp_path / "model.onnx", "--engine") == 1
    assert "engine:" in capsys.readouterr().out and not (tmp_path / "model_fp16_engine").exists()
