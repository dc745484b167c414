"""Verdicts in, assignment out: which precision each node runs in.

`eager`: every node that is not pinned runs in FP16, but for one case. Nodes that only move values or compare them
(Reshape, Transpose, Gather, Greater, ...) take the precision around them: a connected group of them that touches FP32
nodes alone (FP32 graph inputs and outputs count as such) stays FP32, where FP16 would cost two casts and gain nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx_ir as ir

from stages.graph.decide import Decision, Verdict
from stages.graph.slots import is_float32, takes_any_type

FP32, FP16 = ir.DataType.FLOAT, ir.DataType.FLOAT16

# Their outputs are elements of their inputs, or no floats at all.
# fmt: off
_MOVES = {
    "CenterCropPad", "Compress", "Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "GatherND",
    "Identity", "OneHot", "Pad", "Reshape", "ReverseSequence", "ScatterElements", "ScatterND", "Slice", "SpaceToDepth",
    "Split", "Squeeze", "Tile", "Transpose", "Trilu", "Unique", "Unsqueeze", "Where",
    "ArgMax", "ArgMin", "Equal", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual", "NonZero",
}
# fmt: on


def eager(decisions: Mapping[ir.Node, Decision], keep_io_types: bool = True) -> dict[ir.Node, ir.DataType]:
    """FLOAT or FLOAT16 for every judged node.

    Args:
        decisions: as `decide` gives them, of a normalized model.
        keep_io_types: whether graph inputs and outputs stay float32.
    """
    assignment = {node: FP32 if decision.verdict is Verdict.fp32 else FP16 for node, decision in decisions.items()}
    movers = [node for node, decision in decisions.items() if decision.verdict is Verdict.free and _moves(node)]
    for group in _groups(movers):
        neighbours = set(_neighbours(group, assignment, FP32 if keep_io_types else FP16))
        if neighbours == {FP32}:
            assignment.update(dict.fromkeys(group, FP32))
    return assignment


def _moves(node: ir.Node) -> bool:
    return node.domain == "" and node.op_type in _MOVES


def _groups(movers: list[ir.Node]) -> Iterator[list[ir.Node]]:
    """Movers that are connected through float tensors, each group in graph order."""
    order = {node: index for index, node in enumerate(movers)}
    seen: set[ir.Node] = set()
    for start in movers:
        if start in seen:
            continue
        group, waiting = set[ir.Node](), [start]
        while waiting:
            node = waiting.pop()
            if node in group or node not in order:
                continue
            group.add(node)
            waiting += [other for other in _linked(node) if other is not None]
        seen |= group
        yield sorted(group, key=order.__getitem__)


def _linked(node: ir.Node) -> Iterator[ir.Node | None]:
    """Producers of the float tensors that a node reads, consumers of those it writes."""
    for value in node.inputs:
        if is_float32(value) and value is not None:
            yield value.producer()
    for value in node.outputs:
        if is_float32(value):
            yield from value.consumers()


def _neighbours(
    group: list[ir.Node], assignment: Mapping[ir.Node, ir.DataType], io_type: ir.DataType
) -> Iterator[ir.DataType]:
    """Precisions that a group touches; constants have none of their own."""
    members = set(group)
    for node in group:
        for other in _linked(node):
            if other is not None and other not in members and not takes_any_type(other) and other.op_type != "Constant":
                yield assignment[other]
        for value in [*node.inputs, *node.outputs]:
            if is_float32(value) and value is not None and (value.is_graph_input() or value.is_graph_output()):
                yield io_type
