"""Origins of values: host or device, known before a run, or sized by data.

Origin, by who knows it. TensorRT computes the first three on the host, as shape tensors; of the fourth that is not
documented:

    CONSTANT    every run has the same: initializers, and what is computed from them and from fixed sizes
    SHAPE       computed from sizes that vary
    INPUT       computed from a small integer input, which TensorRT then takes as a shape-tensor input
    ROUND       computed from the number of the round that a Loop is in
    DATA        anything else: an execution tensor, known only on the device

    origin(node) = the latest of its inputs;  Shape(x) = SHAPE, whatever x is, or CONSTANT where all its sizes are fixed

Sized by data: NonZero, Unique, Compress and NonMaxSuppression of DATA, and what takes its size from them.

Sizes that are moved out of Shape are known element by element; None stands for one that only a run knows:

    Shape(x: [batch, 3, 640]) = [None, 3, 640]     Gather(Shape(x), 2) = 640     Concat(Shape(y: [n]), [4]) = [None, 4]
"""

from __future__ import annotations

import math
from enum import IntEnum
from typing import Any

import numpy as np
import onnx_ir as ir

from truehalf.ir.facts import lengths_of, subgraphs
from truehalf.ir.ops import Trait, has, row_of

_SHAPE_INPUT_MAX = 64  # elements of a shape tensor that is computed on the host


class Origin(IntEnum):
    """Where a value is known."""

    CONSTANT = 0
    SHAPE = 1
    INPUT = 2
    ROUND = 3
    DATA = 4


class Values:
    """Origins and sizes of all values of a sorted graph and of its subgraphs."""

    def __init__(self, graph: ir.Graph) -> None:
        self._origins: dict[ir.Value, Origin] = {}
        self._known: dict[ir.Value, Sizes | None] = {}
        self._sized: set[ir.Value] = set()  # by data
        self._counted: set[ir.Value] = set()  # values computed from such a size
        for value in graph.inputs:
            if not value.is_initializer():
                self._origins[value] = Origin.INPUT if _may_be_shape(value) else Origin.DATA
        self._walk(graph)

    def origin(self, value: ir.Value | None) -> Origin:
        """Return the origin of a value; an input that is left out is a constant."""
        if value is None or value.is_initializer():
            return Origin.CONSTANT
        return self._origins.get(value, Origin.DATA)

    def sizes(self, value: ir.Value | None) -> list[int] | None:
        """List the elements of a constant, or of a vector moved out of shapes, if all are known before a run."""
        return ints(sizes_in(value, self._known))

    def sized_by_data(self, value: ir.Value | None) -> bool:
        """Return True if the size of a tensor depends on values that a run computes, so that it may be empty."""
        return value in self._sized

    def counted(self, value: ir.Value | None) -> bool:
        """Return True if a value is computed from the size of a tensor that is sized by data."""
        return value in self._counted

    def _walk(self, graph: ir.Graph) -> None:
        for node in graph:
            inner = subgraphs(node)
            for subgraph in inner:
                self._origins.update((value, Origin.DATA) for value in subgraph.inputs)
                if node.op_type == "Loop" and node.domain == "" and subgraph.inputs:
                    self._origins[subgraph.inputs[0]] = Origin.ROUND
                self._walk(subgraph)
            results = [value for subgraph in inner for value in subgraph.outputs]
            self._trace(node, [*node.inputs, *results])
            self._measure(node, [*node.inputs, *results])

    def _trace(self, node: ir.Node, read: list[ir.Value | None]) -> None:
        origin = max((self.origin(value) for value in read), default=Origin.CONSTANT)
        if has(node, Trait.SHAPE_ONLY):
            origin = Origin.SHAPE if origin > Origin.CONSTANT else origin
        elif has(node, Trait.RANDOM):
            origin = Origin.DATA
        for value in node.outputs:
            is_known = origin < Origin.DATA and self.sizes(value) is not None
            self._origins[value] = Origin.CONSTANT if is_known else origin

    def _measure(self, node: ir.Node, read: list[ir.Value | None]) -> None:
        counted = any(value in self._counted for value in read)
        if has(node, Trait.SHAPE_ONLY):
            counted, sized = counted or node.inputs[0] in self._sized, False
        elif has(node, Trait.COUNTS):
            sized = any(self.origin(value) > Origin.CONSTANT for value in read)
        elif has(node, Trait.SIZED_BY_FIRST):
            sized = node.inputs[0] in self._sized
        else:
            sized = any(value in self._sized for value in read)
            slots = row_of(node).sizes
            sizes = [value for index, value in enumerate(node.inputs) if slots is None or index in slots]
            sized = sized or any(value in self._counted or self.origin(value) is Origin.DATA for value in sizes)
        for value in node.outputs:
            if counted:
                self._counted.add(value)
            if sized and ((lengths := lengths_of(value)) is None or None in lengths):
                self._sized.add(value)


def _may_be_shape(value: ir.Value) -> bool:
    """Return True for an integer input of rank 0 or 1, of a fixed length."""
    lengths = lengths_of(value)
    if value.dtype not in (ir.DataType.INT32, ir.DataType.INT64) or lengths is None or len(lengths) > 1:
        return False
    return all(length is not None and length <= _SHAPE_INPUT_MAX for length in lengths)


# --- sizes ------------------------------------------------------------------------------------------------------------

Sizes = np.ndarray[Any, Any]  # of objects, int or None; a vector or a number
_FEW = 64  # elements of a vector that is looked into


def constant(value: ir.Value | None) -> ir.TensorProtocol | None:
    """Return the tensor of an initializer or of a Constant node; None for a computed value."""
    return ir.convenience.get_const_tensor(value) if value is not None else None


def sizes_in(value: ir.Value | None, known: dict[ir.Value, Sizes | None]) -> Sizes | None:
    """Return the elements of an int64 vector or number; None for another or longer tensor, or if nothing is known.

    Args:
        known: results for other values, to which new ones are added.
    """
    if value is None or value.dtype != ir.DataType.INT64:
        return None
    if value not in known:
        tensor, node = constant(value), value.producer()
        if tensor is not None:
            found = tensor.numpy().astype(object) if tensor.size <= _FEW else None
        else:
            found = _moved(node, known) if node is not None and node.domain == "" else None
        known[value] = found if found is not None and found.ndim <= 1 and found.size <= _FEW else None
    return known[value]


def _moved(node: ir.Node, known: dict[ir.Value, Sizes | None]) -> Sizes | None:
    if has(node, Trait.SHAPE_ONLY):
        return _of_shape(node)
    if not (has(node, Trait.NO_ARITHMETIC) and has(node, Trait.STAYS_A_SIZE)):
        return None
    read = [sizes_in(value, known) for value in node.inputs]
    try:
        return _result(node, read[0], read[1:])
    except (IndexError, ValueError, TypeError):  # the node is not valid
        return None


def _result(node: ir.Node, data: Sizes | None, rest: list[Sizes | None]) -> Sizes | None:
    if node.op_type == "Concat":
        parts = [part for part in (data, *rest) if part is not None]
        return np.concatenate(parts) if len(parts) == len(node.inputs) else None
    if data is None or node.op_type in ("Identity", "Cast"):
        return data
    if node.op_type == "Squeeze":
        return data.reshape(()) if data.size == 1 else data
    if node.op_type == "Unsqueeze":
        axes = node.attributes.get_ints("axes") or ints(rest[0])
        return data.reshape(1) if data.ndim == 0 and axes is not None and len(axes) == 1 else None
    if node.op_type == "Reshape":
        shape = ints(rest[0])
        return None if shape is None or 0 in shape else data.reshape(shape)
    if node.op_type == "Gather":
        index = rest[0]
        return None if index is None else np.asarray(np.take(data, index.astype(np.int64)), dtype=object)
    starts, ends, steps = ints(rest[0]), ints(rest[1]), [1] if len(rest) < 4 else ints(rest[3])
    if starts is None or ends is None or steps is None or steps[0] < 1:
        return None
    return data[starts[0] : ends[0] : steps[0]]  # Python and ONNX clamp alike


def ints(sizes: Sizes | None) -> list[int] | None:
    """Return the elements where all of them are known."""
    return None if sizes is None or None in sizes.ravel().tolist() else [int(size) for size in sizes.ravel()]


def _of_shape(node: ir.Node) -> Sizes | None:
    dims = lengths_of(node.inputs[0])
    if dims is None:
        return None
    if node.op_type == "Size":
        known = [dim for dim in dims if dim is not None]
        return np.array(math.prod(known), dtype=object) if len(known) == len(dims) else None
    kept = dims[slice(node.attributes.get_int("start", 0), node.attributes.get_int("end"))]
    return np.array(kept, dtype=object)
