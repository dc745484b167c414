"""Outline of a graph as the page draws it: nodes with module, type and arithmetic, FP32 islands, stages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TypedDict

FP16, FP32 = "fp16", "fp32"
_TRUNK = 0.95  # share of the arithmetic from which on a module stands for those around it


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


def stages(nodes: Sequence[Node], shown: Sequence[Node]) -> list[tuple[str, int, int]]:
    """(module, first position, last position) of each stretch of `shown` that lies in one part of the trunk, in order.

    Parts that are interleaved are cut where most of their nodes lie: a stretch ends where the next one begins.

    Args:
        nodes: of the file, whose arithmetic says which module is the trunk.
        shown: nodes whose positions are returned.
    """
    depth = _trunk(nodes)
    scopes = (node["scope"].split(".") if node["scope"] else [] for node in shown)
    bands = _joined([(parts[depth], i, i) for i, parts in enumerate(scopes) if len(parts) > depth])
    least = max(3.0, 0.015 * len(shown))
    return _joined([band for band in bands if band[2] - band[1] >= least])


def _trunk(nodes: Sequence[Node]) -> int:
    """Depth of the innermost module that holds nearly all of the arithmetic and has modules inside."""
    flops = defaultdict[tuple[str, ...], float](float)
    inner = dict[tuple[str, ...], set[tuple[str, ...]]]()
    for node in nodes:
        if node["op"] != "Cast":
            parts = tuple(part for part in node["scope"].split(".") if part)
            for depth in range(len(parts) + 1):
                flops[parts[:depth]] += node["flops"]
                if depth:
                    inner.setdefault(parts[: depth - 1], set()).add(parts[:depth])
    module: tuple[str, ...] = ()
    while module in inner:
        largest = max(inner[module], key=lambda each: flops[each])
        if flops[largest] < _TRUNK * flops[module] or largest not in inner:
            break
        module = largest
    return len(module)


def _joined(bands: Sequence[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    found: list[tuple[str, int, int]] = []
    for name, start, end in bands:
        if found and found[-1][0] == name:
            found[-1] = (name, found[-1][1], end)
        else:
            found.append((name, start, end))
    return found
