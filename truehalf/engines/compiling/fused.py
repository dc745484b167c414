"""Attentions that the compiler fuses, and FP32 nodes and casts inside the others."""

from __future__ import annotations

import re
from collections.abc import Sequence

import onnx_ir as ir

from truehalf.ir.facts import reached
from truehalf.ir.patterns import Attention, Neighbours
from truehalf.runtime.tensorrt.versions import Layer

_ATTENTION = re.compile(r"mha|flash|fmha", re.IGNORECASE)  # in the names of fused attention kernels


def attentions(model: ir.Model, layers: Sequence[Layer]) -> tuple[list[str], list[str]]:
    """Names of the Softmax of each attention of a graph: those in fused kernels, and the others."""
    inside = {name for layer in layers if _ATTENTION.search(layer["name"]) for name in layer["onnx_nodes"]}
    names = [str(each.softmax.name) for each in Neighbours(model).attentions()]
    return [name for name in names if name in inside], [name for name in names if name not in inside]


def fp32_inside(model: ir.Model) -> dict[str, list[str]]:
    """By the name of each attention's Softmax, its FP32 nodes and casts, from Q K^T to the product with V."""
    found = {}
    for attention in Neighbours(model).attentions():
        wide = (node for node in _nodes(attention) if node.op_type == "Cast" or _is_fp32(node))
        found[str(attention.softmax.name)] = [f"{node.op_type} {node.name}" for node in wide]
    return found


def _is_fp32(node: ir.Node) -> bool:
    return any(value.dtype == ir.DataType.FLOAT for value in node.outputs)


def _nodes(attention: Attention) -> list[ir.Node]:
    """Softmax, products, and the nodes on the ways between them."""

    def above(value: ir.Value) -> list[ir.Value | None]:
        producer = value.producer()
        return [] if producer is None else list(producer.inputs)

    def below(value: ir.Value) -> list[ir.Value | None]:
        return [output for node in value.consumers() for output in node.outputs]

    softmax, products = attention
    before = set(reached(softmax.inputs, above))
    after = set(reached(softmax.outputs, below))
    found = dict.fromkeys([softmax, *products])
    for product in products:
        results = set(reached(product.outputs, below))
        sources = set(reached(product.inputs, above))
        between = before & results | after & sources
        found |= dict.fromkeys(node for value in between if (node := value.producer()) is not None)
    return list(found)
