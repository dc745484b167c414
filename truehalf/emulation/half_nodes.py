"""The nodes that take a FLOAT16 node's place when its sum is made explicit, and the one way in which sums are cut.

`split` replaces the FP16 nodes that have a rule, in opset OPSET or later.

A sum of n terms becomes blocks of at most BLOCK terms, each rounded, which are added up one after the other:

    s = 0;  s = r(s + r(x[0] + ... + x[127]));  s = r(s + r(x[128] + ... + x[255]));  ...

over several axes, the last axes that fit a block together first, then what is before them. A sum over an axis whose
length only a run knows is not cut.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from truehalf.codes import coded
from truehalf.errors import StageError
from truehalf.ir.facts import all_nodes, label_of, lengths_of
from truehalf.ir.normalize import Names
from truehalf.ir.opset import ToOpset

BLOCK = 128  # terms that are added up before a rounding
OPSET = 13  # from which on the nodes are stated
NOT_SPLIT = "not_split"  # key of ir.Model.meta

HALF = ir.DataType.FLOAT16
_FLOAT = ir.DataType.FLOAT
_INT64 = ir.DataType.INT64


class NotSplitError(Exception):
    """The node stays as it is; says why."""


class HalfNodes:
    """Collects nodes that are to replace `node`; every value that they make is FLOAT16 unless declared otherwise.

    Attributes:
        node: what is replaced.
        opset: OPSET or more.
        nodes: in order.
    """

    def __init__(self, node: ir.Node, opset: int, names: Names) -> None:
        self.node = node
        self.opset = opset
        self.nodes: list[ir.Node] = []
        self._names = names
        self._stem = str(node.outputs[0].name)

    @property
    def source(self) -> ir.Value:
        """The first input of the node that is replaced."""
        value = self.node.inputs[0]
        assert value is not None, "a node that computes in FLOAT16 reads it"
        return value

    # --- nodes --------------------------------------------------------------------------------------------------------

    def op(self, op_type: str, *inputs: ir.Value | None, dtype: ir.DataType = HALF, **attributes: Any) -> ir.Value:
        """The output of a new node."""
        return self.ops(1, op_type, *inputs, dtype=dtype, **attributes)[0]

    def ops(
        self, count: int, op_type: str, *inputs: ir.Value | None, dtype: ir.DataType = HALF, **attributes: Any
    ) -> list[ir.Value]:
        """The `count` outputs of a new node."""
        node = ir.node(op_type, list(inputs), attributes, num_outputs=count)
        node.name = self.fresh(op_type)
        for output in node.outputs:
            output.name, output.type = self.fresh(f"{op_type}/out"), ir.TensorType(dtype)
        self.nodes.append(node)
        return list(node.outputs)

    def constant(self, numbers: Any, dtype: ir.DataType) -> ir.Value:
        with np.errstate(over="ignore"):
            tensor = ir.tensor(np.asarray(numbers).astype(dtype.numpy()))
        return self.op("Constant", dtype=dtype, value=tensor)

    def half(self, number: float) -> ir.Value:
        return self.constant(number, HALF)

    def ints(self, numbers: Sequence[int]) -> ir.Value:
        return self.constant(list(numbers), _INT64)

    def cast(self, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        return self.op("Cast", value, dtype=dtype, to=int(dtype))

    def reduced(self, op_type: str, value: ir.Value, axes: Sequence[int], keepdims: int = 1) -> ir.Value:
        """A Reduce operator over `axes`, which stay with length 1 unless `keepdims` is 0."""
        if op_type == "ReduceSum" or self.opset >= 18:
            return self.op(op_type, value, self.ints(axes), keepdims=keepdims)
        return self.op(op_type, value, axes=list(axes), keepdims=keepdims)

    def shape(self, value: ir.Value) -> ir.Value:
        return self.op("Shape", value, dtype=_INT64)

    def fresh(self, wanted: str) -> str:
        """An unused name, for parts of a subgraph."""
        return self._names.fresh(f"{self._stem}/{wanted}")

    def pieces(self, value: ir.Value, axis: int, length: int, block: int) -> list[ir.Value]:
        """`value` cut along `axis`, which has `length` > `block` elements."""
        sizes = [min(block, length - start) for start in range(0, length, block)]
        return self.ops(len(sizes), "Split", value, self.ints(sizes), axis=axis)

    # --- sums ---------------------------------------------------------------------------------------------------------

    def added(self, values: Sequence[ir.Value]) -> ir.Value:
        """values[0] + values[1] + ..., from left to right."""
        total = values[0]
        for value in values[1:]:
            total = self.op("Add", total, value)
        return total

    def total(self, value: ir.Value, dims: Sequence[int | None], axes: Sequence[int]) -> ir.Value:
        """The sum over `axes` (not negative) of a value of shape `dims`; the axes stay with length 1.

        Raises:
            NotSplitError: where the length of an axis is not known.
        """
        lengths = {axis: known(dims[axis], f"the length of axis {axis}") for axis in axes}
        for group in _groups(lengths):
            axis = group[0]
            if len(group) == 1 and lengths[axis] > BLOCK:
                pieces = self.pieces(value, axis, lengths[axis], BLOCK)
                value = self.added([self.reduced("ReduceSum", piece, group) for piece in pieces])
            else:
                value = self.reduced("ReduceSum", value, group)
        return value

    def mean(self, value: ir.Value, dims: Sequence[int | None], axes: Sequence[int]) -> ir.Value:
        """The sum over `axes`, divided by the number of terms."""
        total = self.total(value, dims, axes)
        return self.divided(total, math.prod(dims[axis] or 0 for axis in axes))

    def divided(self, value: ir.Value, terms: int) -> ir.Value:
        """value / terms, rounded once, also where FP16 does not hold `terms`."""
        if terms <= 2048:
            return self.op("Div", value, self.half(terms))
        wide = self.op("Div", self.cast(value, _FLOAT), self.constant(terms, _FLOAT), dtype=_FLOAT)
        return self.cast(wide, HALF)


def _groups(lengths: Mapping[int, int]) -> Iterator[list[int]]:
    """Axes that are summed at once, last ones first: as many as fit a block, or one that does not."""
    group: list[int] = []
    size = 1
    for axis in sorted(lengths, reverse=True):
        if group and size * lengths[axis] > BLOCK:
            yield group
            group, size = [], 1
        group = [axis, *group]
        size *= max(lengths[axis], 1)
    if group:
        yield group


def dims_of(value: ir.Value) -> list[int | None]:
    """Lengths of the axes, None where a length is not known.

    Raises:
        NotSplitError: when not even the rank is known.
    """
    if (dims := lengths_of(value)) is None:
        raise NotSplitError(coded("sizes-unknown", "the rank of its input is unknown"))
    return dims


def known(length: int | None, what: str) -> int:
    """`length`, if it is known.

    Raises:
        NotSplitError: else.
    """
    if length is None:
        raise NotSplitError(coded("sizes-unknown", f"{what} is unknown"))
    return length


def source_of(build: HalfNodes) -> tuple[ir.Value, list[int | None]]:
    """The first input of the node that is replaced, and its shape.

    Raises:
        NotSplitError: when its rank is unknown.
    """
    return build.source, dims_of(build.source)


Rule = Callable[[HalfNodes], list[ir.Value] | None]


def split(model: ir.Model, rules: dict[str, Rule], names: Names) -> dict[str, str]:
    """Replace the FP16 nodes that have a rule, in place; of those that were left, why."""
    opset = model.graph.opset_imports.get("", 0)
    left: dict[str, str] = {}
    for graph in list(model.graphs()):
        for node in list(graph):
            rule = rules.get(node.op_type) if node.domain == "" else None
            if rule is None or not (is_half(node.inputs[:1]) and is_half(node.outputs)):
                continue
            try:
                _split(node, graph, rule, HalfNodes(node, opset, names))
            except NotSplitError as error:
                left[label_of(node)] = str(error)
    return left


def raise_for_rules(model: ir.Model, rules: Iterable[str]) -> bool:
    """Bring a model to the opset in which rules state their nodes, where one has an FP16 node and onnx can; whether it
    was. Afterwards new values have no type.
    """
    nodes = (node for node in all_nodes(model) if node.domain == "" and node.op_type in rules)
    if model.graph.opset_imports.get("", OPSET) >= OPSET or not any(is_half(node.inputs[:1]) for node in nodes):
        return False
    with contextlib.suppress(StageError):
        ToOpset(OPSET)(model)
    return model.graph.opset_imports[""] == OPSET


def _split(node: ir.Node, graph: ir.Graph, rule: Rule, build: HalfNodes) -> None:
    if build.opset < OPSET:
        raise NotSplitError(f"opset {build.opset}: expected {OPSET} or more, and onnx cannot raise it")
    if (results := rule(build)) is not None:
        pairs = [pair for pair in zip(node.outputs, results, strict=False) if pair[0].name]
        old, new = zip(*pairs, strict=True)
        ir.convenience.replace_nodes_and_values(graph, node, [node], build.nodes, old, new)


def is_half(values: Iterable[ir.Value | None]) -> bool:
    return any(value is not None and value.dtype == HALF for value in values)
