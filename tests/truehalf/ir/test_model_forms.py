"""A model file, as it is handed on."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.parser
import pytest

from tests.messages import raises
from tests.truehalf.linked_models import stored
from truehalf import repair
from truehalf.ir.model_file import load_model
from truehalf.ir.model_forms import ModelFile, as_ir


def test_inputs_fixed_to_different_batches_are_refused(tmp_path: Path) -> None:
    text = """<ir_version: 10, opset_import: ["" : 17]>
    g (float[2, 3] a, float[N] b, float[4] c) => (float[2, 3] y) { y = Identity (a) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    with raises("wrong-shape", "model.onnx", "a: 2, c: 4"):
        print(ModelFile(tmp_path / "model.onnx").fixed_batch)


def test_a_copy_of_a_loaded_model_is_not_written_over_its_weights(tmp_path: Path) -> None:
    path = stored(tmp_path / "there")
    data = path.with_name("model.onnx_data")
    content = data.read_bytes()
    with raises("would-overwrite", data):
        repair(load_model(path), data)
    assert data.read_bytes() == content


BROKEN = {
    "weights that are elsewhere": (
        "file-missing",
        ("gone.bin", "w"),
        """<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y)
            <float[2] w = ["location": "gone.bin"]> { y = Add (x, w) }""",
    ),
    "a weight that a node writes, too": (
        "model-invalid",
        ("w",),
        """<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> {
            w = Neg (x) y = Add (x, w) }""",
    ),
    "a weight that a node of an If writes, too": (
        "model-invalid",
        ("w",),
        """<ir_version: 8, opset_import: ["" : 17]> g (float[2] x, bool c) => (float[2] y) {
            y = If (c) <then_branch = a () => (float[2] w) <float[2] w = {1, 2}> { w = Neg (x) },
            else_branch = b () => (float[2] q) { q = Abs (x) }> }""",
    ),
    "a cycle": (
        "graph-cycle",
        (),
        """<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { a = Add (x, y) y = Neg (a) }""",
    ),
    "nothing": ("file-unreadable", (), """<ir_version: 8, opset_import: ["" : 17]> g () => () {}"""),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_model_in_memory_that_is_broken_is_refused_as_its_file_is(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, facts, text = BROKEN[name]
    proto = onnx.parser.parse_model(text)
    with raises(code, *facts):
        as_ir(proto)
    (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())
    with raises(code, *facts):
        as_ir(tmp_path / "model.onnx")
