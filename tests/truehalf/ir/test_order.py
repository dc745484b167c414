"""Files whose nodes stand in front of what they read: ONNX Runtime and TensorRT run them, and some tools write them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from truehalf.ir.model_file import load_model, save_model
from truehalf.ir.model_forms import as_ir
from truehalf.runtime.ort import Session

BRANCHES = "y = If (k) <then_branch = a () => (float[3] p) { p = Neg (z) }, else_branch = b () => (float[3] q) { %s }>"
LOOP = "y = Loop (n, k, x) <body = b (int64 i, bool d, float[3] v) => (bool e, float[3] w) { %s e = Identity (d) }>"
UNSORTED = {
    "backwards": "y = Add (t, c) t = Tanh (s) s = Div (z, c) z = Mul (x, c)",
    "in turns": "s = Div (z, c) z = Mul (x, c) y = Add (t, c) t = Tanh (s)",
    "in front of what a branch reads": f"{BRANCHES % 'q = Identity (z)'} z = Mul (x, c)",
    "in front of what a body reads": f"{LOOP % 'w = Add (v, z)'} z = Mul (x, c)",
    "in front of a sequence": "y = SequenceAt (s, j) s = SequenceConstruct (x, c) j = Sub (n, n)",
}
INSIDE = {  # these ONNX Runtime does not run
    "a branch": f"z = Mul (x, c) {BRANCHES % 'q = Neg (r) r = Exp (x)'}",
    "a body": LOOP % "w = Add (v, u) u = Tanh (v)",
}
X = {"x": np.array([0.5, -1, 2], np.float32)}


def written(body: str, path: Path) -> Path:
    proto = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]> g (float[3] x) => (float[3] y)
        <float[3] c = {{1, 2, 3}}, bool k = {{1}}, int64 n = {{2}}> {{ {body} }}"""
    )
    onnx.save(proto, path)
    return path


@pytest.mark.parametrize("name", UNSORTED)
def test_they_are_sorted_when_they_are_loaded(name: str, tmp_path: Path) -> None:
    source, target = written(UNSORTED[name], tmp_path / "m.onnx"), tmp_path / "sorted.onnx"
    model = load_model(source).clone()
    save_model(model, target)
    np.testing.assert_array_equal(Session(target).run(X)["y"], Session(source).run(X)["y"])
    order = [node.outputs[0].name for node in model.graph]
    assert [node.outputs[0].name for node in load_model(target).graph] == order


@pytest.mark.parametrize("name", INSIDE)
def test_so_is_what_they_hold(name: str, tmp_path: Path) -> None:
    save_model(load_model(written(INSIDE[name], tmp_path / "m.onnx")).clone(), tmp_path / "sorted.onnx")
    assert Session(tmp_path / "sorted.onnx").run(X)["y"].shape == (3,)


@pytest.mark.parametrize("name", UNSORTED)
def test_so_are_models_in_memory(name: str, tmp_path: Path) -> None:
    source = written(UNSORTED[name], tmp_path / "m.onnx")
    given = ir.from_proto(onnx.load(source))
    save_model(as_ir(given), tmp_path / "sorted.onnx")
    np.testing.assert_array_equal(Session(tmp_path / "sorted.onnx").run(X)["y"], Session(source).run(X)["y"])
