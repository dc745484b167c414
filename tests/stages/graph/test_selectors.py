"""Selecting nodes by type and by name."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from stages.graph.selectors import select, selectors
from stages.io import StageError

GRAPH = """<ir_version: 8, opset_import: ["": 17]> g (float[2,2] x) => (float[2,2] y)
    { a = MatMul(x, x)  b = Softmax(a)  y = MatMul(b, x) }"""
NAMES = ["/decoder/layers.0/MatMul", "/decoder/Softmax", "/encoder/MatMul_1"]


def matched(op_types: list[str], patterns: list[str]) -> tuple[dict[str, str], list[str]]:
    nodes = list(ir.from_onnx_text(GRAPH).graph)
    for node, name in zip(nodes, NAMES, strict=True):
        node.name = name
    selection = select(nodes, selectors(op_types, patterns))
    return {node.name or "": str(s) for node, s in selection.nodes.items()}, [str(s) for s in selection.unmatched]


def test_op_types_are_equal_not_contained() -> None:
    assert matched(["MatMul", "Soft"], []) == (
        {"/decoder/layers.0/MatMul": "op_block_list: MatMul", "/encoder/MatMul_1": "op_block_list: MatMul"},
        ["op_block_list: Soft"],
    )


def test_patterns_are_found_anywhere() -> None:
    names, unmatched = matched([], ["layers\\.\\d+/", "^Softmax$"])
    assert names == {"/decoder/layers.0/MatMul": "node_block_list: layers\\.\\d+/"}
    assert unmatched == ["node_block_list: ^Softmax$"]


def test_a_selector_whose_nodes_others_took_first_is_not_unmatched() -> None:
    names, unmatched = matched(["MatMul"], ["encoder"])
    assert names["/encoder/MatMul_1"] == "op_block_list: MatMul"
    assert unmatched == []


def test_every_bad_pattern_is_named() -> None:
    with pytest.raises(StageError, match=r"'\(' .*'\*a'"):
        selectors([], ["(", "fine", "*a"])
