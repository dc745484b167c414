"""Peak memory of a graph's activations: the largest sum of tensors that are alive at once.

Nodes run in the order of the graph, and a tensor is freed after its last use. Reshape and its like hand their input on
instead of copying it. Weights and subgraphs of control flow are left out; what a subgraph reads is read by its node.
An estimate: a runtime may fuse nodes, run them in another order, and keep more than it needs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

import onnx_ir as ir

from truehalf.ir.normalize import elements
from truehalf.ir.ops import Trait, has


def peak_bytes(model: ir.Model, shapes: Mapping[ir.Value, Sequence[int]], float16_bytes: Literal[2, 4] = 2) -> int:
    """The largest number of bytes alive at once.

    Args:
        model: typed.
        shapes: as truehalf.ir.normalize finds them.
        float16_bytes: of a float16 element: 4 where float16 is computed in float32, as emulation does.
    """

    def size(value: ir.Value) -> int:
        if _is_weight(value) or value not in shapes:
            return 0
        width = float16_bytes if value.dtype == ir.DataType.FLOAT16 else value.dtype.itemsize if value.dtype else 4
        return int(elements(shapes[value]) * width)

    uses = Counter(_root(value) for node in model.graph for value in _read(node))
    uses.update(_root(value) for value in model.graph.outputs)
    alive = sum(size(value) for value in model.graph.inputs)
    most = alive
    for node in model.graph:
        if not _is_view(node):
            alive += sum(size(value) for value in node.outputs)
        most = max(most, alive)
        for value in dict.fromkeys(_root(value) for value in [*_read(node), *node.outputs]):
            uses[value] -= sum(_root(read) is value for read in _read(node))
            if uses[value] <= 0 and not _is_weight(value):
                alive -= size(value)
    return most


def _read(node: ir.Node) -> list[ir.Value]:
    """Inputs of a node, and what its subgraphs read from outside."""
    found = [value for value in node.inputs if value is not None]
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            inside = {value for inner in attribute.as_graph().all_nodes() for value in inner.outputs}
            found += [
                value
                for inner in attribute.as_graph().all_nodes()
                for value in inner.inputs
                if value is not None and value not in inside and value.graph is node.graph
            ]
    return found


def _is_view(node: ir.Node) -> bool:
    return has(node, Trait.VIEW)


def _root(value: ir.Value) -> ir.Value:
    """The value whose memory a view shows."""
    while (node := value.producer()) is not None and _is_view(node) and node.inputs[0] is not None:
        value = node.inputs[0]
    return value


def _is_weight(value: ir.Value) -> bool:
    return value.const_value is not None
