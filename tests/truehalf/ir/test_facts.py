"""What a node holds and reads, with its bodies, and theirs; whether a model holds FP16."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx_ir as ir
import pytest

from tests.truehalf.verification.small_detector import FP16, FP32, write
from truehalf.ir.facts import holds_fp16, subgraphs, values_read, with_subgraphs

NESTED = """<ir_version: 10, opset_import: ["" : 20]>
g (bool a, bool b, float[2] x, float[2] y, float[2] z) => (float[2] r) {
    [outer] r = If (a) <
        then_branch = t () => (float[2] p) {
            [inner] p = If (b) <
                then_branch = tt () => (float[2] x) { },
                else_branch = te () => (float[2] q) { [deepest] q = Add(y, y) }
            >
        },
        else_branch = e () => (float[2] s) { [other] s = Neg(z) }
    >
}"""


def outer() -> ir.Node:
    model = ir.from_proto(onnx.parser.parse_model(NESTED))  # the checker wants a node behind x; ONNX Runtime does not
    (node,) = model.graph
    return node


def test_bodies_are_those_of_the_node_alone() -> None:
    assert [graph.name for graph in subgraphs(outer())] == ["t", "e"]


def test_nodes_inside_at_any_depth() -> None:
    assert [node.name for node in with_subgraphs(outer())] == ["outer", "inner", "deepest", "other"]


def test_an_outer_tensor_that_an_inner_body_puts_out_is_read() -> None:
    names = {value.name for value in values_read(outer())}
    assert {"a", "b", "x", "y", "z"} <= names and "r" not in names


@pytest.mark.parametrize(("text", "expected"), [(FP32, False), (FP16, True)])
def test_fp16_is_recognised(tmp_path: Path, text: str, expected: bool) -> None:
    assert holds_fp16(ir.load(write(tmp_path / "model.onnx", text))) is expected


def test_a_cast_to_fp16_alone_is_recognised() -> None:
    text = """<ir_version: 10, opset_import: ["" : 17]>
    g (float[2] x) => (float[2] y) { half = Cast <to = 10> (x) y = Cast <to = 1> (half) }"""
    assert holds_fp16(ir.from_proto(onnx.parser.parse_model(text)))
