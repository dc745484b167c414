"""Constants that forward makes with a floating type of their own, and where they meet tensors of the module's type.

    made     tensor([1.0]), zeros(3), linspace(0, 1, 9), arange(n, dtype=float32): float32, whatever module.half() does
    passed   arithmetic, views and most functions: one operand with a type of its own and an axis makes the result so
    left     to(x.dtype), type_as(x), half(), comparisons: the type is another
    met      a product (matmul, conv, linear, attention) of such a tensor and one of the module's type: torch refuses it

A number without axes (tensor(2.0), full((), 2.0)) does not change the type of what it is combined with.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from truehalf.exporting.source_lint.values import Value, is_number, made_in

if TYPE_CHECKING:
    from truehalf.exporting.source_lint.expressions import Reader

DTYPE_CONSTANT = "py-dtype-constant"
_FLOAT_BY_DEFAULT = {
    "zeros", "ones", "empty", "rand", "randn", "eye", "linspace", "logspace", "hann_window", "hamming_window",
    "blackman_window", "bartlett_window", "kaiser_window",
}  # fmt: skip
_AS_ITS_DATA = {"tensor", "as_tensor", "asarray", "scalar_tensor", "full", "arange", "range"}
_LIKE = {
    "zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like",
    "new_zeros", "new_ones", "new_empty", "new_full", "new_tensor",
}  # fmt: skip
_NEW_TYPE = {
    "to", "type", "type_as", "half", "float", "double", "bfloat16", "int", "long", "short", "bool", "byte", "char",
    "eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite", "logical_and", "logical_or", "logical_not",
    "argmax", "argmin", "argsort", "nonzero", "searchsorted", "bucketize", "any", "all", "equal", "allclose",
}  # fmt: skip
_PRODUCTS = {
    "matmul", "mm", "bmm", "mv", "dot", "einsum", "tensordot", "linear", "bilinear", "addmm", "addbmm", "baddbmm",
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "grid_sample",
    "scaled_dot_product_attention", "layer_norm", "group_norm",
}  # fmt: skip


def typed(
    reader: Reader, node: ast.AST, name: str, result: Value, args: Sequence[Value], kwargs: dict[str, Value]
) -> Value:
    """The result of torch's function or a tensor's method of that name, with the type of the constants in it.

    Args:
        args: of a method, the tensor itself first.
    """
    if result.kind != "tensor":
        return result
    if name in _FLOAT_BY_DEFAULT | _AS_ITS_DATA or (name in _LIKE and "dtype" in kwargs):
        own = not _is_number_alone(name, args, kwargs) and _is_floating(name, args, kwargs)
        return dataclasses.replace(result, made=(reader.place(node),)) if own else result
    if name in _PRODUCTS:
        met(reader, [*_tensors(args), *_tensors(kwargs.values())])
    if name in _NEW_TYPE:
        return result
    taken = args[:1] if name in _LIKE or name.endswith("_") else [*args, *kwargs.values()]
    return dataclasses.replace(result, made=made_in(*_tensors(taken)))


def of_module(reader: Reader, module: Any, result: Value, args: Sequence[Value]) -> Value:
    """The result of a module of torch's own: one with parameters refuses inputs of another type than theirs."""
    tensors = _tensors(args)
    own = next((True for parameter in module.parameters() if parameter.is_floating_point()), False)
    if own:
        for value in tensors:
            _report(reader, value)
        return result
    return dataclasses.replace(result, made=made_in(*tensors)) if result.kind == "tensor" else result


def met(reader: Reader, values: Sequence[Value]) -> None:
    """Report the constants among the factors of a product, where one of them has the module's type."""
    tensors = [value for value in values if value.is_tensor]
    if any(not value.made for value in tensors):
        for value in tensors:
            _report(reader, value)


def _report(reader: Reader, value: Value) -> None:
    for place in value.made:
        reader.report_at(DTYPE_CONSTANT, place)


def _tensors(values: Any) -> list[Value]:
    """Tensors among arguments, and those in lists of them."""
    found: list[Value] = []
    for value in values:
        found += [value] if value.is_tensor else _tensors(value.items) if value.kind in ("list", "sequence") else []
    return found


def _is_floating(name: str, args: Sequence[Value], kwargs: dict[str, Value]) -> bool:
    import torch

    dtype = kwargs.get("dtype")
    if dtype is not None and not (dtype.kind == "known" and dtype.known is None):
        return dtype.kind == "known" and isinstance(dtype.known, torch.dtype) and dtype.known.is_floating_point
    if name in _FLOAT_BY_DEFAULT:
        return True
    if name in _LIKE:
        return False
    data = args[1:2] if name == "full" else args if name in ("arange", "range") else args[:1]
    fill = [kwargs[key] for key in ("fill_value", "data", "start", "end", "step") if key in kwargs]
    return any(_holds_float(value) for value in [*data, *fill])


def _holds_float(value: Value) -> bool:
    if value.kind == "list":
        return any(_holds_float(item) for item in value.items)
    return value.kind == "known" and _is_float(value.known)


def _is_float(given: Any) -> bool:
    return any(map(_is_float, given)) if isinstance(given, (list, tuple)) else isinstance(given, float)


def _is_number_alone(name: str, args: Sequence[Value], kwargs: dict[str, Value]) -> bool:
    """Whether the result has no axes, or what it is made of is not known."""
    if name in ("arange", "range", "linspace", "logspace", "eye") or name.endswith("_window") or name in _LIKE:
        return False
    first = args[0] if args else kwargs.get("data", kwargs.get("size", kwargs.get("s")))
    if first is None:
        return False
    if name in ("tensor", "as_tensor", "asarray", "scalar_tensor"):
        lists = first.kind in ("list", "sequence") or (first.kind == "known" and isinstance(first.known, (list, tuple)))
        return is_number(first) or not lists or first.holds_tensor
    return first.kind == "known" and isinstance(first.known, (list, tuple)) and not first.known
