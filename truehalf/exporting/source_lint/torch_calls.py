"""Return values of torch's functions and a tensor's methods, and their float type.

made     tensor([1.0]), zeros(3), linspace(0, 1, 9), arange(n, dtype=float32): float32, whatever module.half() does
passed   arithmetic, views and most functions: one operand with an explicit type and an axis makes the result so
left     to(x.dtype), type_as(x), half(), comparisons: the type is another
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import truehalf.exporting.source_lint.kinds as kinds
from truehalf.exporting.source_lint.kinds import NUMBER, TENSOR, UNKNOWN, Abstract, is_tensor, tensor

TRUTHS = {"__bool__", "is_nonzero", "equal", "allclose"}  # a truth value leaves the graph
NUMBERS = {"__int__", "__float__", "__complex__", "__index__", "item", "tolist", "numpy", "__array__"}  # numbers do
SHAPED_ALIKE = {
    "zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like", "randint_like", "new_zeros",
    "new_ones", "new_empty", "new_full",
}  # fmt: skip
_SIZES = {"numel", "nelement", "dim", "ndim", "ndimension", "element_size", "itemsize", "nbytes"}
_VIEWS = {
    "data", "T", "mT", "real", "imag", "detach", "view", "view_as", "transpose", "permute", "squeeze", "unsqueeze",
    "select", "narrow", "t", "diagonal", "unfold",
}  # fmt: skip
_SEVERAL = {
    "split", "split_with_sizes", "chunk", "unbind", "tensor_split", "meshgrid", "broadcast_tensors", "topk", "sort",
    "kthvalue", "cummax", "cummin", "aminmax", "std_mean", "var_mean", "LSTM", "GRU", "RNN", "MultiheadAttention",
}  # fmt: skip
_NEW_TYPE = TRUTHS | {
    "to", "type", "type_as", "half", "float", "double", "bfloat16", "int", "long", "short", "bool", "byte", "char",
    "eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite", "logical_and", "logical_or", "logical_not",
    "argmax", "argmin", "argsort", "nonzero", "searchsorted", "bucketize", "any", "all",
}  # fmt: skip


def attribute(owner: Abstract, name: str) -> Any:
    """Of a tensor; unknown for a method."""
    if name in ("T", "mT", "H", "mH", "data", "grad", "real", "imag"):
        return tensor(owner, held=owner.held and name in _VIEWS)
    return [NUMBER] if name == "shape" else NUMBER if name in _SIZES else UNKNOWN


def returned(name: str, args: Sequence[Any], kwargs: Mapping[str, Any], place: kinds.SourceLocation) -> Any:
    """By torch's function of that name, or a tensor's method; of a method, `args` has the tensor itself first."""
    import torch

    given, single = kinds.holds_tensor(args, kwargs), len(args) + len(kwargs) == 1
    if name in NUMBERS | _SIZES or name in ("size", "stride"):
        return [NUMBER] if single and name in ("size", "stride") else NUMBER
    along = name in ("max", "min", "median") and ("dim" in kwargs or not is_tensor([*args, TENSOR, TENSOR][1]))
    if along or name in _SEVERAL or (name == "where" and single) or (name == "unique" and len(kwargs)):
        return [TENSOR]
    asks = (name.startswith(("is_", "has_", "_has_")) and name not in TRUTHS) or (name == "type" and single)
    if asks or not (given or hasattr(torch._C._VariableFunctions, name)):
        return UNKNOWN
    in_place = name.endswith("_") and not name.endswith("__")
    alike = name in SHAPED_ALIKE or name == "new_tensor"
    held = bool(args) and is_tensor(args[0]) and args[0].held and (in_place or name in _VIEWS)
    result = tensor(*(args[:1] if in_place or alike else (*args, *kwargs.values())), held=held)
    if not given or (alike and "dtype" in kwargs):
        result = dataclasses.replace(result, made=(place,) if _makes_floats(name, args, kwargs) else ())
    return dataclasses.replace(result, made=()) if name in _NEW_TYPE else result


def of_module(module: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """By a module of torch; one with parameters takes inputs of their type only."""
    result = TENSOR if has_floats(module) else tensor(args, kwargs)
    return [result] if type(module).__name__ in _SEVERAL else result


def has_floats(module: Any) -> bool:
    return any(parameter.is_floating_point() for parameter in module.parameters())


def _makes_floats(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether the result has axes (a number takes the type of others) and floats; by torch, without storage."""
    import torch

    def stand_in(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(map(stand_in, value))
        return {"": value, "number": 1, "tensor": torch.empty(1, device="meta")}[kinds.kind(value)]

    try:
        given = {key: stand_in(value) for key, value in kwargs.items() if key != "device"}
        function: Any = getattr(torch, name, getattr(torch.Tensor, name, None))
        made = function(*map(stand_in, args), **given, device="meta")
        return bool(made.is_floating_point() and made.ndim)
    except Exception:  # torch's, of arguments that are not known
        return False
