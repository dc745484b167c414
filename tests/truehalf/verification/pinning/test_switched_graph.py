"""The graph with switches: where it rounds, where it chooses, and what it leaves alone."""

from __future__ import annotations

from collections import Counter
from typing import Any

import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from tests.messages import raises
from truehalf.config.precision import Precision
from truehalf.verification.pinning.switched_graph import Board, switchboard


def parsed(text: str, opset: int = 17) -> ir.Model:
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]>\n{text}')
    onnx.checker.check_model(proto, full_check=True)
    return ir.from_proto(proto)


def built(text: str, ranges: Any = None, **options: object) -> Board:
    board = switchboard(parsed(text), Precision(**options), ranges)  # type: ignore[arg-type]
    onnx.checker.check_model(ir.to_proto(board.model), full_check=True)
    return board


def ops(board: Board) -> Counter[str]:
    return Counter(node.op_type for graph in board.model.graphs() for node in graph)


def test_one_rounding_for_each_tensor_and_one_choice_for_each_reader() -> None:
    board = built(
        """g (float[4] x) => (float[4] y) { [a] a = Relu(x) [b] b = Exp(a) [c] c = Mul(a, a) [d] y = Add(b, c) }"""
    )
    assert board.nodes == ("a", "b", "c", "d")
    found = ops(board)
    assert found["Cast"] == 2 * 5  # x, a, b, c, y
    assert found["Where"] == 6  # x to a, a to b, a to c (once), b to d, c to d, y
    assert [value.name for value in board.model.graph.inputs] == ["x", board.input]
    assert [value.name for value in board.model.graph.outputs] == ["y"]


def test_weights_choose_only_where_rounding_changes_them() -> None:
    text = "g (float[2] x) => (float[2] y) <float[2] w = {%s}> { [a] y = Mul(x, w) }"
    assert ops(built(text % "0.5, 2.0"))["Where"] == 2  # x and y
    assert ops(built(text % "0.1, 2.0"))["Where"] == 3
    board = built(text % "0.1, 1e6")
    (stored,) = [t for name, t in board.model.graph.initializers.items() if name.startswith("w/half")]
    assert stored.const_value is not None
    assert stored.const_value.numpy().tolist() == [pytest.approx(0.1, abs=5e-5), 65504.0]


def test_what_stays_float32_has_no_switch_and_is_not_rounded() -> None:
    board = built("""g (float[1,1,2,2] x, float[4] s) => (float[1,1,4,4] y, int64[4] n)
        { [n] n = Shape(x) [a] y = Resize(x, , s) }""")
    assert board.nodes == ("a",)
    assert board.fixed == {"n"}
    assert [str(value.name) for value in board.model.graph.inputs][:2] == ["x", "s"]
    (resize,) = [node for node in board.model.graph if node.op_type == "Resize"]
    assert resize.inputs[2] is board.model.graph.inputs[1]
    (shape,) = [node for node in board.model.graph if node.op_type == "Shape"]
    assert shape.inputs[0] is board.model.graph.inputs[0]


def test_inputs_and_outputs_that_become_float16_are_rounded_without_a_choice() -> None:
    text = "g (float[2] x) => (float[2] y) { [a] y = Relu(x) }"
    assert ops(built(text))["Where"] == 2
    board = built(text, keep_io_types=False)
    assert (ops(board)["Where"], ops(board)["Cast"]) == (0, 4)


def test_bodies_have_the_switch_of_their_node() -> None:
    board = built("""g (float[2] x, bool c) => (float[2] y) { [a] a = Relu(x)
        [i] r = If(c) <then_branch = t () => (float[2] p) { [t] p = Exp(a) },
        else_branch = e () => (float[2] q) { [e] q = Neg(a) }> [b] y = Add(r, a) }""")
    assert board.nodes == ("a", "i", "b")
    assert board.fixed == {"t", "e"}


def test_scopes_come_from_names() -> None:
    board = built('g (float[2] x) => (float[2] y) { ["/enc/l.0/Relu"] a = Relu(x) [b] y = Exp(a) }')
    assert board.scopes == {"/enc/l.0/Relu": "enc.l.0", "b": ""}


def test_the_model_itself_is_left_and_the_result_is_the_same_every_time() -> None:
    model = parsed("g (float[2] x) => (float[2] y) <float[2] w = {0.1, 0.2}> { a = Mul(x, w) y = Exp(a) }")
    before = ir.to_proto(model).SerializeToString()
    first, second = (ir.to_proto(switchboard(model, Precision()).model).SerializeToString() for _ in range(2))
    assert first == second
    assert ir.to_proto(model).SerializeToString() == before


def test_refusals() -> None:
    with raises("wrong-opset", "opset 8", 9, "precision.opset=17"):
        switchboard(parsed("g (float[2] x) => (float[2] y) { y = Relu(x) }", opset=8), Precision())
    with raises("nothing-in-fp16"):
        switchboard(parsed("g (int64[2] x) => (int64[2] y) { y = Neg(x) }"), Precision())
