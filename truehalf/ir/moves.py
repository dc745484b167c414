"""Operators that only move values, and the connected regions that they form.

A move commutes with every elementwise function f: move(f(x)) = f(move(x)). So the tensors that moves join have one
element type in common, and may take another one together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import onnx_ir as ir

from truehalf.ir.slots import schema_of

# Positions of the inputs whose values end up in the outputs; None: all of them. What else an operator adds is zero.
MOVES: dict[str, tuple[int, ...] | None] = {
    **dict.fromkeys(("Compress", "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "GatherND"), (0,)),
    **dict.fromkeys(("Identity", "Reshape", "ReverseSequence", "Slice", "SpaceToDepth", "Split", "Squeeze"), (0,)),
    **dict.fromkeys(("CenterCropPad", "Tile", "Transpose", "Trilu", "Unsqueeze"), (0,)),
    **dict.fromkeys(("Pad", "Scatter", "ScatterElements", "ScatterND"), (0, 2)),
    "Where": (1, 2),
    "Concat": None,
}
_READS_NO_VALUES = {"Shape", "Size"}

# The types that these may be given: those that ONNX Runtime's CPU provider (tests/truehalf/conversion/test_kernels.py
# measures it) and TensorRT's parser (onnx-tensorrt 10.1, docs/operators.md) have in common, and DOUBLE, which TensorRT
# has nowhere. For 8- and 16-bit and unsigned integers there are kernels here and there.
_T = ir.DataType
_FLOATS = {_T.FLOAT, _T.FLOAT16, _T.DOUBLE}
_NUMBERS = _FLOATS | {_T.INT32, _T.INT64}
_PLAIN = _NUMBERS | {_T.BOOL}
_KERNELS: dict[str, set[ir.DataType]] = {
    **dict.fromkeys(("DepthToSpace", "SpaceToDepth"), _FLOATS),
    **dict.fromkeys(("CenterCropPad", "Pad", "Scatter", "ScatterElements", "ScatterND", "Where"), _NUMBERS),
    **dict.fromkeys(("Compress", "Expand", "ReverseSequence", "Size", "Tile", "Trilu"), _PLAIN),
    **dict.fromkeys(("Concat", "Flatten", "Gather", "GatherElements", "GatherND", "Identity"), _PLAIN | {_T.BFLOAT16}),
    **dict.fromkeys(
        ("Reshape", "Shape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"), _PLAIN | {_T.BFLOAT16}
    ),
}


def has_kernel(node: ir.Node, dtype: ir.DataType | None) -> bool:
    """Whether a move, Shape or Size has kernels for an element type, in the opset of its graph."""
    schema = schema_of(node)
    if schema is None or dtype is None or dtype not in _KERNELS[node.op_type]:
        return False
    parameter = schema.inputs[0] if reads_no_values(node) else schema.outputs[0]
    return f"tensor({dtype.name.lower()})" in parameter.types


def moved_inputs(node: ir.Node) -> tuple[int, ...]:
    """Positions of the inputs that a node moves to its outputs; empty when it does anything else with them."""
    if node.domain != "" or node.op_type not in MOVES or _adds_up(node):
        return ()
    positions = MOVES[node.op_type]
    count = len(node.inputs)
    return tuple(range(count)) if positions is None else tuple(index for index in positions if index < count)


def reads_no_values(node: ir.Node) -> bool:
    """Whether a node asks only for the shape of what it reads."""
    return node.domain == "" and node.op_type in _READS_NO_VALUES


@dataclass
class Region:
    """Moves of one graph that are joined by what they move.

    Attributes:
        nodes: in no particular order.
        entries: what flows in: (node, position, value), without absent inputs.
        results: all outputs of the nodes.
        exits: what else reads a result: (node, position).
    """

    nodes: dict[ir.Node, tuple[int, ...]] = field(default_factory=dict)
    entries: list[tuple[ir.Node, int, ir.Value]] = field(default_factory=list)
    results: list[ir.Value] = field(default_factory=list)
    exits: list[tuple[ir.Node, int]] = field(default_factory=list)


def regions(graph: ir.Graph) -> Iterator[Region]:
    """The regions of a graph, in the order of their first nodes; each node of it is in one at most."""
    seen = set[ir.Node]()
    for node in list(graph):
        if node not in seen and moved_inputs(node):
            region = _region(node)
            seen.update(region.nodes)
            yield region


def _region(start: ir.Node) -> Region:
    region = Region({start: moved_inputs(start)})
    waiting = [start]
    while waiting:
        node = waiting.pop()
        for index in region.nodes[node]:
            value = node.inputs[index]
            producer = value.producer() if value is not None else None
            if producer is not None:
                _join(region, producer, start, waiting)
        for result in node.outputs:
            for user, position in result.uses():
                if position in moved_inputs(user):
                    _join(region, user, start, waiting)
    for node, positions in region.nodes.items():
        for index in positions:
            value = node.inputs[index]
            if value is not None and value.producer() not in region.nodes:
                region.entries.append((node, index, value))
        for result in node.outputs:
            region.results.append(result)
            region.exits += [use for use in result.uses() if use.idx not in region.nodes.get(use.node, ())]
    return region


def _join(region: Region, node: ir.Node, start: ir.Node, waiting: list[ir.Node]) -> None:
    if node not in region.nodes and node.graph is start.graph and (positions := moved_inputs(node)):
        region.nodes[node] = positions
        waiting.append(node)


def _adds_up(node: ir.Node) -> bool:
    return node.op_type.startswith("Scatter") and node.attributes.get_string("reduction", "none") != "none"
