"""Nodes chosen by their neighbours.

    A -> B -> C    every A whose result reaches a B whose result reaches a C
    A <- B <- C    every A that reads the result of a B that reads that of a C

"Reaches" and "reads": directly, or through operators that only move or scale the values:

    Cast, Dropout, Expand, Flatten, Identity, Reshape, Squeeze, Transpose, Unsqueeze
    Add, Sub, Mul, Div (as numerator), Where      when the other operand is a constant, a scale or a mask, that is:
                                                  no matrix product or convolution stands anywhere before it

So `MatMul -> Softmax` is the product of queries and keys, with its scale and mask between, and not the projection
whose result meets another one in an Add.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple

import onnx_ir as ir

from truehalf.config.selector_entries import Chain
from truehalf.ir import ops
from truehalf.ir.facts import FLOATS, all_nodes, reached, subgraphs
from truehalf.ir.ops import Trait, moved_inputs
from truehalf.ir.slots import takes_any_type

_PASSED = ops.with_trait(Trait.LAYOUT) | {"Cast", "Dropout"}
_PRODUCTS = ops.with_trait(Trait.PRODUCT)


class Attention(NamedTuple):
    """An attention spelled out, softmax(Q K^T) V, with scale and mask or without; `products`: Q K^T and that with V."""

    softmax: ir.Node
    products: tuple[ir.Node, ...]


class Neighbours:
    """A model's nodes with their neighbourhood, looked at once for all patterns."""

    def __init__(self, model: ir.Model) -> None:
        self._model = model

    def select(self, chain: Chain) -> list[ir.Node]:
        """Nodes that a pattern means, in graph order."""
        step = self._feeding if chain.forward else self._reading
        last, *before = reversed(chain.op_types)
        found = {node for node in self._nodes if is_named(node, last)}
        for op_type in before:
            found = {node for node in step(found) if is_named(node, op_type)}
        return [node for node in self._nodes if node in found]

    def attentions(self) -> list[Attention]:
        """Attentions in graph order: a Softmax that reads a MatMul of two computed tensors, and is read by one."""
        products = {node for node in self._nodes if is_named(node, "MatMul") and all(map(is_computed, node.inputs))}
        found = []
        for node in self._nodes:
            if is_named(node, "Softmax"):
                before, after = self._feeding({node}) & products, self._reading({node}) & products
                if before and after:
                    around = tuple(each for each in self._nodes if each in before | after)
                    found.append(Attention(node, around))
        return found

    @cached_property
    def _nodes(self) -> list[ir.Node]:
        return list(all_nodes(self._model))

    @cached_property
    def _of_products(self) -> set[ir.Value]:
        """Values that a matrix product or convolution stands before; what enters a subgraph may be one."""
        found: set[ir.Value] = set()
        for node in self._nodes:
            graph = node.graph
            if graph is not self._model.graph and graph is not None:
                found.update(value for value in graph.inputs if value not in found)
            if node.op_type in _PRODUCTS or any(value in found for value in node.inputs) or subgraphs(node):
                found.update(node.outputs)
        return found

    def _feeding(self, targets: set[ir.Node]) -> set[ir.Node]:
        """Nodes whose results reach a target."""

        def passed(value: ir.Value) -> list[ir.Value | None]:
            node = value.producer()
            return [] if node is None else [node.inputs[index] for index in self._passed(node)]

        values = reached((value for node in targets for value in node.inputs), passed)
        return {node for value in values if (node := value.producer()) is not None}

    def _reading(self, sources: set[ir.Node]) -> set[ir.Node]:
        """Nodes that read the result of a source."""

        def passed(value: ir.Value) -> list[ir.Value]:
            return [out for node, index in value.uses() if index in self._passed(node) for out in node.outputs]

        values = reached((value for node in sources for value in node.outputs), passed)
        return {node for value in values for node in value.consumers()}

    def _passed(self, node: ir.Node) -> list[int]:
        """Positions of the inputs whose values go on, moved or scaled, as the node's result."""
        if node.domain != "":
            return []
        if node.op_type in _PASSED:
            return [0]
        slots = ops.row_of(node).scaled
        touched = [index for index in slots if node.inputs[index] in self._of_products]
        return list(touched if touched else slots) if len(touched) < 2 else []


def beside(node: ir.Node) -> list[ir.Node]:
    """Nodes that compute the floats that a node reads, and that compute with those that it makes, with nothing between
    but moves (a Where is none). Behind a Cast, and behind what reads shapes alone, there is none; so with constants.
    """

    def sources(value: ir.Value) -> list[ir.Value]:
        maker = value.producer()
        return [] if maker is None else _floats(maker.inputs[index] for index in _moved(maker))

    def results(value: ir.Value) -> list[ir.Value]:
        return _floats(out for reader, index in value.uses() if index in _moved(reader) for out in reader.outputs)

    makers = (value.producer() for value in reached(_floats(node.inputs), sources))
    above = [each for each in makers if each and each.inputs and not _moved(each) and not is_named(each, "Cast")]
    uses = (use for value in reached(_floats(node.outputs), results) for use in value.uses())
    below = [reader for reader, index in uses if index not in _moved(reader) and not takes_any_type(reader)]
    return list(dict.fromkeys([*above, *below]))


def _moved(node: ir.Node) -> tuple[int, ...]:
    return () if ops.has(node, Trait.CHOOSES) else moved_inputs(node)


def _floats(values: Iterable[ir.Value | None]) -> list[ir.Value]:
    return [value for value in values if value is not None and value.dtype in FLOATS]


def is_named(node: ir.Node, op_type: str) -> bool:
    """Whether a node is of an operator type; `Op` in any domain, `domain::Op` in that one (ai.onnx: the default)."""
    domain, _, name = op_type.rpartition("::")
    return node.op_type == name and (not domain or node.domain == ("" if domain == "ai.onnx" else domain))


def is_computed(value: ir.Value | None) -> bool:
    """Whether a value is no constant."""
    return value is not None and not value.is_initializer() and ir.convenience.get_const_tensor(value) is None
