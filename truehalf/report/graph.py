"""Outline of a graph as the page draws it: nodes with module, type and arithmetic, FP32 islands, stages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypedDict

FP16, FP32 = "fp16", "fp32"
_TRUNK = 0.95  # share of the nodes from which on a module stands for those around it


class Tensor(TypedDict):
    """An input or output of a file; shape: sides, or "?" where nothing is known of one."""

    name: str
    dtype: str
    shape: list[int | str]


class Node(TypedDict):
    """A node, in graph order.

    Attributes:
        node, op: its name and operator.
        scope: dotted path of its module; "" where none is known.
        precision: "fp16" or "fp32" by the floats that it writes; "" where it writes none.
        flops: arithmetic for one sample, operations.
        reads: (position of the node that writes a tensor, -1 for an input of the graph; element type); no constants.
    """

    node: str
    op: str
    scope: str
    precision: str
    flops: float
    reads: list[tuple[int, str]]


class Outline(TypedDict):
    """Of a file; mb: 10^6 bytes with its external data, sha256: of the file alone, producer: tool and version."""

    file: str
    mb: float
    sha256: str
    external: list[str]
    opset: int
    ir_version: int
    inputs: list[Tensor]
    outputs: list[Tensor]
    nodes: list[Node]


def islands(nodes: Sequence[Node]) -> list[list[int]]:
    """Positions of FP32 nodes that are connected by FP32 tensors, casts and constants left out; in graph order."""
    inside = {i for i, node in enumerate(nodes) if node["precision"] == FP32 and node["op"] not in ("Cast", "Constant")}
    if all(node["precision"] != FP16 for node in nodes):
        return []
    neighbours: dict[int, set[int]] = {i: set() for i in inside}
    for i in inside:
        for source, kind in nodes[i]["reads"]:
            if source in inside and kind == "FP32":
                neighbours[i].add(source)
                neighbours[source].add(i)
    seen: set[int] = set()
    return [sorted(_connected(i, neighbours, seen)) for i in sorted(inside) if i not in seen]


def _connected(start: int, neighbours: dict[int, set[int]], seen: set[int]) -> Iterator[int]:
    waiting = [start]
    while waiting:
        i = waiting.pop()
        if i not in seen:
            seen.add(i)
            yield i
            waiting += neighbours[i]
