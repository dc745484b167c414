"""Operators that only move values, and the connected regions that they form.

A move commutes with every elementwise function f: move(f(x)) = f(move(x)). So the tensors that moves join have one
element type in common, and may take another one together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import onnx_ir as ir

from truehalf.ir.ops import moved_inputs


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
