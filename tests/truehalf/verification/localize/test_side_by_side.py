"""Both files in one graph: what is whose, where names and types stand in the way."""

from __future__ import annotations

import numpy as np
import onnx.parser
import onnx_ir as ir

from truehalf.verification.localize.node_errors import Comparer
from truehalf.verification.localize.side_by_side import SideBySide, side_by_side


def model(text: str) -> ir.Model:
    return ir.from_proto(onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 17]>\n{text}'))


def local_errors(side: SideBySide, x: list[float]) -> dict[str, float]:
    comparer = Comparer(side)
    return {
        pair.reference: float(local_error)
        for pair, local_error in zip(comparer.pairs, comparer.run({"x": np.float32(x)}).local_error, strict=True)
    }


def test_weights_that_are_inputs_as_well_stay_the_candidates_own() -> None:
    """Files of old carry every weight in the list of inputs, too."""
    text = "g (float[2] x, float[2] w = {1.0, 2.0}) => (float[2] y) { y = Mul(x, w) }"
    side = side_by_side(model(text), model(text.replace("2.0}", "3.0}")), {"y": "y"})
    assert local_errors(side, [0, 1]) == {"y": 0.5}
    assert [value.name for value in side.model.graph.inputs] == ["x", "w"]


def test_outputs_that_no_node_writes() -> None:
    """An input and a weight that are outputs as they stand."""
    text = """g (float[2] x) => (float[2] y, float[2] x, float[2] w) <float[2] w = {1.0, 2.0}> { y = Mul(x, w) }"""
    side = side_by_side(model(text), model(text.replace("2.0}", "3.0}")), {"x": "x", "y": "y"})
    run = Comparer(side).run({"x": np.float32([5, 7])})
    assert {name: value.tolist() for name, value in run.reference.items()} == {"y": [5, 14], "x": [5, 7], "w": [1, 2]}
    assert {name: value.tolist() for name, value in run.candidate.items()} == {"y": [5, 21], "x": [5, 7], "w": [1, 3]}


def test_sequences_are_no_pairs() -> None:
    text = """g (float[4] x) => (float[4] y)
    { a = Neg(x)  s = SplitToSequence <axis = 0, keepdims = 1> (a)  y = ConcatFromSequence <axis = 0> (s) }"""
    half = """g (float[4] x) => (float[4] y)
    { h = Cast <to = 10> (x)  a = Neg(h)  s = SplitToSequence <axis = 0, keepdims = 1> (a)
      z = ConcatFromSequence <axis = 0> (s)  y = Cast <to = 1> (z) }"""
    side = side_by_side(model(text), model(half), {name: name for name in "asy"})
    assert local_errors(side, [1, 2, 3, 4]) == {"a": 0, "y": 0}


def test_the_candidates_copies_share_one_weight() -> None:
    text = """g (float[2] x) => (float[2] y) <float[2] w = {1.0, 2.0}>
    { k = Constant <value = float[2] {3.0, 4.0}> ()  a = Mul(x, w)  y = Mul(a, k) }"""
    side = side_by_side(model(text), model(text), {"a": "a", "y": "y"})
    assert sorted(side.model.graph.initializers) == ["accumulated/w", "w"]
    assert sum(node.op_type == "Constant" for node in side.model.graph) == 2
