"""Constants in every form that ONNX has: onnxslim's file computes what they say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from truehalf.ir.model_file import save_model
from truehalf.ir.model_forms import ModelFile
from truehalf.runtime.ort import Session
from truehalf.slimming.slim import slim_model

BODIES = {
    "value_float": "c = Constant <value_float = 3.0> () a = Add(x, c) y = Mul(a, a)",
    "value_floats": "c = Constant <value_floats = [1.0, 2.0]> () a = Add(x, c) y = Mul(a, a)",
    "value_int": "c = Constant <value_int = 3> () d = Cast <to = 1> (c) y = Add(x, d)",
    "value_ints": "c = Constant <value_ints = [2, 1]> () a = Transpose <perm = [1, 0]> (x) y = Tile(a, c)",
    "computed": "c = Constant <value_float = 3.0> () d = Constant <value_float = 4.0> () e = Mul(c, d) y = Add(x, e)",
    "in a branch": "t = Constant <value = bool {1}> () y = If (t) <"
    "then_branch = a () => (float[N, 2] z) { c = Constant <value_float = 3.0> () z = Add(x, c) }, "
    "else_branch = b () => (float[N, 2] w) { w = Neg(x) }>",
}


@pytest.mark.parametrize("name", list(BODIES))
def test_what_onnxslim_makes_computes_the_same(name: str, tmp_path: Path) -> None:
    text = f'<ir_version: 8, opset_import: ["": 17]> g (float[N,2] x) => (float[P,Q] y) {{ {BODIES[name]} }}'
    _assert_same(text, tmp_path)


def test_what_a_call_says_is_the_calls(tmp_path: Path) -> None:
    graph = """<ir_version: 8, opset_import: ["": 17, "own": 1]> g (float[N,2] x) => (float[N,2] y) {
        a = own.F<by = 3.5>(x) y = own.F<by = -2.0>(a) }"""
    function = """<domain: "own", opset_import: ["": 17]> F <by>(x) => (y) {
        c = Constant<value_float: float = @by>() y = Mul(x, c) }"""
    _assert_same(f"{graph} {function}", tmp_path)


def _assert_same(text: str, tmp_path: Path) -> None:
    model = onnx.parser.parse_model(text)
    for number, node in enumerate(model.graph.node):
        node.name = f"n{number}"
    source, target = tmp_path / "m.onnx", tmp_path / "slim.onnx"
    onnx.save(model, source)
    save_model(slim_model(ModelFile(source)).model, target)
    feeds = {"x": np.array([[1, 2], [3, 4], [5, 6]], np.float32)}
    before, after = (list(Session(path).run(feeds).values()) for path in (source, target))
    np.testing.assert_array_equal(before, after)
