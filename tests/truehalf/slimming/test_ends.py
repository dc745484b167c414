"""Inputs and outputs of a slimmed file are those that it had: names, symbols and numbers of their axes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
import torch

from tests.messages import expect
from truehalf.runtime.ort import Session
from truehalf.slimming.slim import slim


class Pictures(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = torch.nn.Conv2d(3, 4, 3, 2, 1), torch.nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        y = self.conv(x).relu()
        return {"scores": self.head(y.mean((2, 3))), "map": y.flatten(2).softmax(-1)}


@pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])
def test_files_of_torch_are_slimmed(exporter: str, tmp_path: Path) -> None:
    """Where dynamic_axes names none of an output's axes, torch names each after the node, whatever its size."""
    module, path = Pictures().eval(), tmp_path / "m.onnx"
    wanted: dict[str, Any] = {"input_names": ["pixels"], "output_names": ["scores", "map"]}
    if exporter == "torchscript":
        wanted |= {"dynamic_axes": {"pixels": {0: "n", 2: "h"}}, "dynamo": False, "opset_version": 17}
    else:
        sides = {0: torch.export.Dim("n"), 2: torch.export.Dim.DYNAMIC}
        wanted |= {"dynamic_shapes": {"x": sides}, "dynamo": True, "verbose": False}
    torch.onnx.export(module, (torch.rand(2, 3, 16, 16),), path, **wanted)
    feeds = [{"pixels": np.random.default_rng(n).random((n, 3, 16, 16), np.float32)} for n in (1, 3)]
    assert slim(path, tmp_path / "slim.onnx", check_feeds=feeds).parity["status"] == "verified"
    before, after = (onnx.load(tmp_path / file).graph for file in ("m.onnx", "slim.onnx"))
    for one, other in zip((*before.input, *before.output), (*after.input, *after.output), strict=True):
        assert (one.name, one.type) == (other.name, other.type)


@pytest.mark.parametrize("seed", range(8))
def test_symbols_of_outputs_may_be_numbers(seed: int, tmp_path: Path) -> None:
    """Any of an output's axes by a name of its own: slim accepts it, and the file goes on saying it."""
    draw = np.random.default_rng(seed)
    sides: list[Any] = [draw.choice(["n", "a"]), *draw.choice(["b", "3"], 1), *draw.choice(["c", "4"], 1)]
    text = f""" g (float[n, 3, 4] x) => (float[{", ".join(map(str, sides))}] y) {{
        i = Identity (x)  t = Transpose <perm = [0, 2, 1]> (i)  b = Transpose <perm = [0, 2, 1]> (t)  y = Neg (b)
    }}"""
    onnx.save(onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 17]>' + text), tmp_path / "m.onnx")
    feeds = [{"x": draw.random((n, 3, 4), np.float32)} for n in (1, 3)]
    slim(tmp_path / "m.onnx", tmp_path / "slim.onnx", check_feeds=feeds)
    (output,) = onnx.load(tmp_path / "slim.onnx").graph.output
    assert [side.dim_param or str(side.dim_value) for side in output.type.tensor_type.shape.dim] == sides


@pytest.mark.parametrize("axis", [0, 1])
def test_an_axis_that_an_input_varies_is_none_that_may_become_a_number(
    axis: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import onnxslim

    text = " g (float[n, m] x) => (float[n, m] y) { i = Identity (x)  y = Neg (i) }"
    onnx.save(onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 17]>' + text), tmp_path / "m.onnx")
    plain = onnxslim.slim

    def baked(*arguments: Any, **keywords: Any) -> onnx.ModelProto:
        proto: onnx.ModelProto = plain(*arguments, **keywords)
        proto.graph.output[0].type.tensor_type.shape.dim[axis].dim_value = 2
        return proto

    monkeypatch.setattr("onnxslim.slim", baked)
    expect(slim(tmp_path / "m.onnx", tmp_path / "slim.onnx").failed, "slim-fails", "onnxslim", "outputs", "y")


@pytest.mark.parametrize("stated", ["1,n", "n,1", "1,1,n", "n", "1,24", "6,k"])
def test_a_stated_output_shape_that_is_false_is_not_computed_with(stated: str, tmp_path: Path) -> None:
    """Exporters state shapes of outputs that no runtime holds a file to; PaddleOCR's recognisers have such."""
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g (float[a, b] x, int64[2] turn) => (float[{stated}] y) {{
        sizes = Shape(x)
        there = Gather(sizes, turn)
        r = Relu(x)
        y = Reshape(r, there)
    }}"""
    source, out = tmp_path / "source.onnx", tmp_path / "slim.onnx"
    onnx.save(onnx.parser.parse_model(text), source)
    slim(source, out)
    for rows, columns in ((4, 6), (3, 5)):
        feed = {"x": np.ones((rows, columns), np.float32), "turn": np.array([1, 0])}
        assert Session(out).run(feed)["y"].shape == (columns, rows)
