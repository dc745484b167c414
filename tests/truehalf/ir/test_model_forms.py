"""A model file, as it is handed on."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.parser

from tests.messages import raises
from truehalf.ir.model_forms import ModelFile


def test_inputs_fixed_to_different_batches_are_refused(tmp_path: Path) -> None:
    text = """<ir_version: 10, opset_import: ["" : 17]>
    g (float[2, 3] a, float[N] b, float[4] c) => (float[2, 3] y) { y = Identity (a) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    with raises("wrong-shape", "model.onnx", "a: 2, c: 4"):
        print(ModelFile(tmp_path / "model.onnx").fixed_batch)
