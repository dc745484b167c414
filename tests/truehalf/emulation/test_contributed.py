"""Operators that ONNX Runtime has and ONNX has not: their outputs have the types that ONNX Runtime says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from truehalf import Precision, compare, convert
from truehalf.emulation.sessions import EmulatedSession
from truehalf.ir.model_file import load_model
from truehalf.runtime.ort import Session
from truehalf.slimming.slim import slim

NODES = {
    "MultiHeadAttention": "a = com.microsoft.MultiHeadAttention<num_heads = 2>(p, p, p)",
    "BiasGelu": "a = com.microsoft.BiasGelu(p, s)",
    "FastGelu": "a = com.microsoft.FastGelu(p)",
    "QuickGelu": "a = com.microsoft.QuickGelu(p)",
    "FusedMatMul": "a = com.microsoft.FusedMatMul<alpha = 0.5>(p, w)",
    "SkipLayerNormalization": 'a, "", "", sum = com.microsoft.SkipLayerNormalization(p, x, s)',
    "two in a row": "b = com.microsoft.BiasGelu(p, s)  a = com.microsoft.QuickGelu(b)",
}
HEAD = '<ir_version: 9, opset_import: ["" : 17, "com.microsoft" : 1]>'


def written(path: Path, node: str, half: bool) -> Path:
    float_ = "float16" if half else "float"
    model = onnx.parser.parse_model(
        f"{HEAD} g ({float_}[1,4,16] x, {float_}[16,16] w, {float_}[16] s) => ({float_}[1,4,16] y) "
        f"{{ p = MatMul(x, w)  {node}  y = MatMul(a, w) }}"
    )
    random = np.random.default_rng(0)
    for value, size in (("w", (16, 16)), ("s", (16,))):
        array = (random.normal(size=size) / 4).astype(np.float16 if half else np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, value))
    del model.graph.input[1:]
    onnx.save(model, path)
    return path


SAMPLES = {"x": np.random.default_rng(1).normal(size=(1, 4, 16)).astype(np.float32)}


@pytest.mark.parametrize("name", NODES)
def test_a_model_with_them_is_converted_and_compared(name: str, tmp_path: Path) -> None:
    path, out = written(tmp_path / "m.onnx", NODES[name], half=False), tmp_path / "half.onnx"
    convert(path, out, samples=[SAMPLES])
    assert compare(path, out, [SAMPLES]).passed


@pytest.mark.parametrize("name", NODES)
def test_what_reads_them_is_converted(name: str, tmp_path: Path) -> None:
    report = convert(written(tmp_path / "m.onnx", NODES[name], half=False), samples=[SAMPLES]).report.fp16
    assert report.model["fp16_fraction"] > 0
    assert not [line for line in report.warnings if "value_info" in line]


def test_a_listed_one_is_float16(tmp_path: Path) -> None:
    path, out = written(tmp_path / "m.onnx", NODES["BiasGelu"], half=False), tmp_path / "half.onnx"
    made = convert(path, out, samples=[SAMPLES], precision=Precision(op_include_list=["com.microsoft::BiasGelu"]))
    (row,) = (row for row in made.decisions if row["op"] == "BiasGelu")
    assert (row["precision"], row["rule"]) == ("fp16", "op_include_list")
    assert compare(path, out, [SAMPLES]).passed


@pytest.mark.parametrize("name", NODES)
def test_of_a_file_in_float16_they_are_rounded(name: str, tmp_path: Path) -> None:
    half, single = (written(tmp_path / f"{each}.onnx", NODES[name], half=each) for each in (True, False))
    made, exact = EmulatedSession(half).run(SAMPLES)["y"], Session(single).run(SAMPLES)["y"]
    assert made.dtype == np.float32
    assert 0 < np.abs(made - exact).max() < 0.02 * np.abs(exact).max()


def test_what_a_file_says_of_their_outputs_is_not_lost_in_slimming(tmp_path: Path) -> None:
    path = written(tmp_path / "m.onnx", NODES["BiasGelu"], half=False)
    model = onnx.load(path)
    model.graph.value_info.append(onnx.helper.make_tensor_value_info("a", onnx.TensorProto.FLOAT, [1, 4, 16]))
    onnx.save(model, path)
    slim(path, tmp_path / "slim.onnx")
    (value,) = (
        value for node in load_model(tmp_path / "slim.onnx").graph for value in node.outputs if value.name == "a"
    )
    assert (value.dtype, list(value.shape or ())) == (ir.DataType.FLOAT, [1, 4, 16])
