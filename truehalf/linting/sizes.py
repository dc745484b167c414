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
    if node.op_type not in ("Identity", "Cast", "Concat", "Gather", "Slice", "Squeeze", "Unsqueeze", "Reshape"):
        return None
    data, *rest = [sizes_in(value, known) for value in node.inputs]
    try:
        if node.op_type == "Concat":
            return np.concatenate([data, *rest])
        if data is None or node.op_type in ("Identity", "Cast"):
            return data
        if node.op_type == "Squeeze":
            return data.reshape(()) if data.size == 1 else data
        numbers = [None if each is None else [int(element) for element in each.ravel()] for each in rest]
        if node.op_type == "Unsqueeze":
            axes = node.attributes.get_ints("axes") or numbers[0] or ()
            return data.reshape(1) if data.ndim == 0 and len(axes) == 1 else None
        if node.op_type == "Reshape":
            return None if numbers[0] is None or 0 in numbers[0] else data.reshape(numbers[0])
        if node.op_type == "Gather":
            return np.asarray(np.take(data, np.array(rest[0], np.int64)), dtype=object)
        (start,), (end,) = numbers[0] or [], numbers[1] or []
        step = (numbers[3] or [1])[0] if len(numbers) > 3 else 1
        return data[start:end:step] if step > 0 else None  # Python and ONNX clamp alike
    except (IndexError, ValueError, TypeError):  # an operand is not known, or the node is not valid
        return None


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
