"""Integers that are known before a run: what shapes are computed from, element by element, as far as it is known.

    Shape(x: [batch, 3, 640])     [None, 3, 640]        Gather(Shape(x), 2)       640
    Concat([None], [20 * 20])     [None, 400]           Equal([None, 2], -1)      [None, 0]

Booleans count as 0 and 1. None is an element that only a run knows. Tensors of more than 256 elements are not followed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from truehalf.ir.ops import Trait, has

Known = np.ndarray[Any, Any]  # of objects: int, float or None

_ELEMENTS_MAX = 256
_TYPES = {ir.DataType.INT64, ir.DataType.INT32, ir.DataType.BOOL, ir.DataType.FLOAT}


def constant(value: ir.Value | None) -> ir.TensorProtocol | None:
    """The tensor of an initializer or of a Constant node; None for what is computed."""
    return ir.convenience.get_const_tensor(value) if value is not None else None


def known_constant(value: ir.Value) -> Known | None:
    """The elements of a small constant."""
    tensor = constant(value)
    if tensor is None or tensor.dtype not in _TYPES or tensor.size > _ELEMENTS_MAX:
        return None
    return tensor.numpy().astype(object)


def evaluate(node: ir.Node, known: Mapping[ir.Value, Known]) -> Known | None:
    """The elements of a node's first output, as far as its inputs are known; None: nothing is known of it."""
    if node.domain != "":
        return None
    try:
        if has(node, Trait.SHAPE_ONLY):
            result = _of_shape(node)
        elif (how := _OPERATORS.get(node.op_type)) is not None:
            read = [known[value] if value is not None else None for value in node.inputs]
            result = how(node, read)
        else:
            return None
    except (KeyError, IndexError, ValueError, TypeError, ZeroDivisionError, OverflowError):
        return None  # an input is not known, or the node is not valid: then a run does not know either
    return result if result is not None and result.size <= _ELEMENTS_MAX else None


def complete(elements: Known | None) -> bool:
    """Whether every element is known."""
    return elements is not None and all(element is not None for element in elements.ravel())


def whole(elements: Known | None) -> list[int] | None:
    """The elements as one list of integers; None where one of them is not known, or not finite."""
    if elements is None or not all(element is not None and math.isfinite(element) for element in elements.ravel()):
        return None
    return [int(element) for element in elements.ravel()]


def _objects(elements: Sequence[Any]) -> Known:
    result = np.empty(len(elements), dtype=object)
    result[:] = elements
    return result


def _of_shape(node: ir.Node) -> Known | None:
    source = node.inputs[0]
    if source is None or source.shape is None:
        return None
    dims = [dim if isinstance(dim, int) else None for dim in source.shape]
    if node.op_type == "Shape":
        return _objects(dims[slice(node.attributes.get_int("start", 0), node.attributes.get_int("end"))])
    known = [dim for dim in dims if dim is not None]
    return np.array(math.prod(known), dtype=object) if len(known) == len(dims) else None


def _each(function: Callable[..., Any]) -> Callable[[ir.Node, list[Any]], Known]:
    """An operator on each element, with broadcasting; what is not known stays so."""

    def on_element(*elements: Any) -> Any:
        return None if any(element is None for element in elements) else function(*elements)

    def on_arrays(node: ir.Node, read: list[Any]) -> Known:
        return np.asarray(np.frompyfunc(on_element, len(read), 1)(*read), dtype=object)

    return on_arrays


def _divide(a: Any, b: Any) -> Any:
    if isinstance(a, float) or isinstance(b, float):
        return a / b
    return int(a / b) if abs(a) < 2**52 else a // b  # towards 0


def _where(condition: Any, yes: Any, no: Any) -> Any:
    if condition is None:
        return yes if yes == no else None
    return yes if condition else no


def _cast(node: ir.Node, read: list[Any]) -> Known | None:
    to = node.attributes.get_int("to", 0)
    kinds: dict[ir.DataType, Callable[..., Any]] = {
        ir.DataType.INT64: int,
        ir.DataType.INT32: int,
        ir.DataType.BOOL: lambda element: int(bool(element)),
        ir.DataType.FLOAT: float,
        ir.DataType.DOUBLE: float,
    }
    kind = kinds.get(ir.DataType(to))
    return _each(kind)(node, read) if kind is not None else None


def _gather(node: ir.Node, read: list[Any]) -> Known | None:
    index = read[1].astype(np.int64) if whole(read[1]) is not None else None
    axis = node.attributes.get_int("axis", 0)
    return np.asarray(np.take(read[0], index, axis=axis), dtype=object) if index is not None else None


def _axes(node: ir.Node, read: list[Any]) -> list[int] | None:
    attribute = node.attributes.get_ints("axes")
    if attribute is not None:
        return list(attribute)
    return whole(read[1]) if len(read) > 1 else None


def _unsqueeze(node: ir.Node, read: list[Any]) -> Known | None:
    axes = _axes(node, read)
    return np.asarray(np.expand_dims(read[0], tuple(axes)), dtype=object) if axes is not None else None


def _squeeze(node: ir.Node, read: list[Any]) -> Known | None:
    axes = _axes(node, read)
    return np.asarray(np.squeeze(read[0], tuple(axes) if axes is not None else None), dtype=object)


def _reshape(node: ir.Node, read: list[Any]) -> Known | None:
    shape = whole(read[1])
    return np.asarray(read[0].reshape(shape), dtype=object) if shape is not None and 0 not in shape else None


def _slice(node: ir.Node, read: list[Any]) -> Known | None:
    if read[0].ndim != 1:
        return None
    numbers = [whole(entry) if entry is not None else None for entry in read[1:]]
    starts, ends = numbers[0], numbers[1]
    steps = numbers[3] if len(numbers) > 3 and numbers[3] is not None else [1]
    if starts is None or ends is None or len(starts) != 1 or steps[0] == 0:
        return None
    return _objects(list(read[0][starts[0] : ends[0] : steps[0]]))  # Python and ONNX clamp alike


def _range(node: ir.Node, read: list[Any]) -> Known | None:
    if any(element.item() is None for element in read):
        return None
    start, limit, step = (element.item() for element in read)
    return _objects(list(range(int(start), int(limit), int(step)))) if (limit - start) / step <= _ELEMENTS_MAX else None


def _constant_of_shape(node: ir.Node, read: list[Any]) -> Known | None:
    shape, value = whole(read[0]), node.attributes.get("value")
    if shape is None or math.prod(shape) > _ELEMENTS_MAX:
        return None
    return np.full(shape, value.as_tensor().numpy().item() if value is not None else 0.0, dtype=object)


def _expand(node: ir.Node, read: list[Any]) -> Known | None:
    shape = whole(read[1])
    if shape is None or math.prod(shape) > _ELEMENTS_MAX:
        return None
    return np.asarray(np.broadcast_to(read[0], np.broadcast_shapes(read[0].shape, tuple(shape))), dtype=object)


def _reduced(function: Callable[[list[int]], Any]) -> Callable[[ir.Node, list[Any]], Known | None]:
    """A reduction of a vector, all of it."""

    def reduce(node: ir.Node, read: list[Any]) -> Known | None:
        elements = whole(read[0])
        if elements is None or read[0].ndim > 1:
            return None
        keep = node.attributes.get_int("keepdims", 1)
        return np.full((1,) * (read[0].ndim if keep else 0), function(elements), dtype=object)

    return reduce


_OPERATORS: dict[str, Callable[[ir.Node, list[Any]], Known | None]] = {
    "Identity": lambda node, read: read[0],
    "Cast": _cast,
    "Gather": _gather,
    "Concat": lambda node, read: np.concatenate(read, axis=node.attributes.get_int("axis", 0)),
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Reshape": _reshape,
    "Slice": _slice,
    "Range": _range,
    "ConstantOfShape": _constant_of_shape,
    "Expand": _expand,
    "Where": lambda node, read: np.asarray(np.frompyfunc(_where, 3, 1)(*read), dtype=object),
    "ReduceProd": _reduced(math.prod),
    "ReduceSum": _reduced(sum),
    "ReduceMax": _reduced(max),
    "ReduceMin": _reduced(min),
    "Add": _each(lambda a, b: a + b),
    "Sub": _each(lambda a, b: a - b),
    "Mul": _each(lambda a, b: a * b),
    "Div": _each(_divide),
    "Mod": _each(lambda a, b: a % b),
    "Min": _each(min),
    "Max": _each(max),
    "Neg": _each(lambda a: -a),
    "Abs": _each(abs),
    "Floor": _each(math.floor),
    "Ceil": _each(math.ceil),
    "Equal": _each(lambda a, b: int(a == b)),
    "Less": _each(lambda a, b: int(a < b)),
    "LessOrEqual": _each(lambda a, b: int(a <= b)),
    "Greater": _each(lambda a, b: int(a > b)),
    "GreaterOrEqual": _each(lambda a, b: int(a >= b)),
    "And": _each(lambda a, b: int(bool(a and b))),
    "Or": _each(lambda a, b: int(bool(a or b))),
    "Not": _each(lambda a: int(not a)),
}
