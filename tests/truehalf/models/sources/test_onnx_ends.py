"""Inputs and outputs of a file that no run could go by are refused, each with what to do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from tests.configurations import composed
from tests.messages import raises
from truehalf.io_spec.spec import IoSpec
from truehalf.models.configuration import validated
from truehalf.models.source import dynamic_axes_of, open_model, spec_of

HEAD = '<ir_version: 8, opset_import: ["" : 17]> g '


def given(folder: Path, text: str, rows: int) -> IoSpec:
    """The I/O spec of a file, as trace takes it from a run on some rows."""
    onnx.save(onnx.parser.parse_model(HEAD + text), folder / "m.onnx")
    config = validated(composed("model=onnx", "model.checkpoint=m.onnx", "data=npz", "data.file=s.npz"))
    model = open_model(config, folder)
    example = {"x": np.ones((rows, 6), np.float32)}
    return spec_of(model, example, dynamic_axes_of(config, model), rows=True)


# An output beside y that has no row for each sample: by its declared shape, and only by what a run gives.
BESIDE = {
    "a constant": ("float[1, 3] z", "z = Constant <value = float[1, 3] {1, 2, 3}> ()"),
    "anchors": ("float[300, 4] z", "s = Constant <value_ints = [300, 4]> ()  z = ConstantOfShape (s)"),
    "a scalar": ("float z", "z = ReduceMean <keepdims = 0> (x)"),
    "the mean": ("float[1, 6] z", "z = ReduceMean <axes = [0]> (x)"),
    "a count": ("int64[1] z", "z = Size (x)"),
    "a sample alone": ("float[6] z", "i = Constant <value_int = 0> ()  z = Gather <axis = 0> (x, i)"),
}
ONLY_RUN = {
    "found by value": ("float[k, 2] z", "n = NonZero (x)  t = Transpose (n)  z = Cast <to = 1> (t)"),
    "flat": ("float[k] z", "s = Constant <value_ints = [-1]> ()  z = Reshape (x, s)"),
    "turned": ("float[k, n] z", "z = Transpose <perm = [1, 0]> (x)"),
    "doubled": ("float[k, 6] z", "z = Concat <axis = 0> (x, x)"),
    "without a row": ("float[k, 6] z", "z = Compress <axis = 0> (x, c)  "),
}


def text_of(z: str, nodes: str, batch: str) -> str:
    no = "c = Constant <value = bool[1] {0}> ()"
    return f"(float[{batch}, 6] x) => (float[{batch}, 6] y, {z}) {{ y = Neg (x)  {no}  {nodes} }}"


@pytest.mark.parametrize("batch", ["n", "2"])
@pytest.mark.parametrize("kind", [*BESIDE, *ONLY_RUN])
def test_an_output_without_a_row_for_each_sample(kind: str, batch: str, tmp_path: Path) -> None:
    z, nodes = (BESIDE | ONLY_RUN)[kind]
    with raises("wrong-shape", "'z'", "model.drop_outputs"):
        given(tmp_path, text_of(z.replace(", n]", f", {batch}]"), nodes, batch), 5)


@pytest.mark.parametrize("shape", [(2, 6), (2, 3, 2), (3, 4), (12,), (1, 12), (6, 2)])
def test_which_shapes_have_rows(shape: tuple[int, ...], tmp_path: Path) -> None:
    """12 values of 2 samples in any shape, which the file does not declare."""
    ends, made = ", ".join("abcdefghijkl"[: len(shape)]), ", ".join(map(str, shape))
    text = f"(float[2, 6] x) => (float[{ends}] z) {{ s = Constant <value_ints = [{made}]> ()  z = Reshape (x, s) }}"
    if shape[0] == 2:
        assert given(tmp_path, text, 3).outputs[0].name == "z"
    else:
        with raises("wrong-shape", "'z'"):
            given(tmp_path, text, 3)


def test_a_file_without_inputs(tmp_path: Path) -> None:
    with raises("wrong-file", tmp_path / "m.onnx", "inputs"):
        given(tmp_path, "() => (float[1, 4] y) { y = RandomNormal <shape = [1, 4]> () }", 1)
