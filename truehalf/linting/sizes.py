"""Sizes that are moved out of Shape, element by element; None for an element that only a run knows.

    Shape(x: [batch, 3, 640]) = [None, 3, 640]     Gather(Shape(x), 2) = 640     Concat(Shape(y: [n]), [4]) = [None, 4]

What is computed from sizes is not followed: onnxslim folds it where it is constant.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx_ir as ir

from truehalf.ir.ops import Trait, has

Sizes = np.ndarray[Any, Any]  # of objects, int or None; a vector or a number
_FEW = 64  # elements of a vector that is looked into


def constant(value: ir.Value | None) -> ir.TensorProtocol | None:
    """The tensor of an initializer or of a Constant node; None for what is computed."""
    return ir.convenience.get_const_tensor(value) if value is not None else None


def sizes_in(value: ir.Value | None, known: dict[ir.Value, Sizes | None]) -> Sizes | None:
    """The elements of an int64 vector or number; None of another tensor, of a longer one, and where nothing is known.

    Args:
        known: those of other values, which gets those that are found.
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


def are_complete(sizes: Sizes | None) -> bool:
    """Whether every element is known."""
    return sizes is not None and all(element is not None for element in sizes.ravel())


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
    """The elements where all of them are known."""
    return [int(size) for size in sizes.ravel()] if sizes is not None and are_complete(sizes) else None


def _of_shape(node: ir.Node) -> Sizes | None:
    source = node.inputs[0]
    if source is None or source.shape is None:
        return None
    dims = [dim if isinstance(dim, int) else None for dim in source.shape]
    if node.op_type == "Size":
        known = [dim for dim in dims if dim is not None]
        return np.array(math.prod(known), dtype=object) if len(known) == len(dims) else None
    kept = dims[slice(node.attributes.get_int("start", 0), node.attributes.get_int("end"))]
    return np.array(kept, dtype=object)
