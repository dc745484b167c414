"""Operators that only move values, and the connected regions that they form.

A move commutes with every elementwise function f: move(f(x)) = f(move(x)). So the tensors that moves join have one
element type in common, and may take another one together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import onnx_ir as ir

from truehalf.ir.facts import reached
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
    region = Region({node: moved_inputs(node) for node in reached([start], _joined)})
    for node, positions in region.nodes.items():
        for index in positions:
            value = node.inputs[index]
            if value is not None and value.producer() not in region.nodes:
                region.entries.append((node, index, value))
        for result in node.outputs:
            region.results.append(result)
            region.exits += [use for use in result.uses() if use.idx not in region.nodes.get(use.node, ())]
    return region


def _joined(node: ir.Node) -> list[ir.Node]:
    """Moves of the same graph that make what a move moves, or move what it makes."""
    makers = [value.producer() for index in moved_inputs(node) if (value := node.inputs[index]) is not None]
    readers = [use.node for result in node.outputs for use in result.uses() if use.idx in moved_inputs(use.node)]
    return [each for each in (*makers, *readers) if each and each.graph is node.graph and moved_inputs(each)]
