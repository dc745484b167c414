"""where(c, x, y) -> c * x + (1 - c) * y, exact for finite x and y, as 0 * x is 0

0 * inf and 0 * NaN are NaN: a branch that may be infinite cannot be mixed so, nor one beyond 65504 that is to run in
FP16. DETR anchors hold torch.finfo(float32).max in such a branch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from truehalf.exporting.torch_ops.exporting import exporting

if TYPE_CHECKING:
    import torch


def where(condition: torch.Tensor, input: torch.Tensor | float, other: torch.Tensor | float) -> torch.Tensor:
    """torch.where(condition, input, other) of finite branches.

    Args:
        condition: bool.
        input, other: tensors or numbers, at least one a tensor that is not bool, of shapes that broadcast with the
            condition's. Every element finite, also those that are not chosen.

    Returns:
        the broadcast shape, in the type that torch promotes input and other to; equal to torch.where, but a chosen
        -0.0 is 0.0.

    Raises:
        TypeError: when the condition is not bool, or both branches are bool.
        ValueError: when an element of a branch is not finite. Checked in eager runs; a trace does not look at values.
    """
    import torch

    if condition.dtype != torch.bool:
        raise TypeError(f"where: expected a bool condition, got {condition.dtype}")
    dtype = torch.result_type(input, other)
    if dtype == torch.bool:
        raise TypeError("where: both branches are bool; use bitwise_and, bitwise_or and bitwise_not")
    for name, branch in (("input", input), ("other", other)):
        _refuse_non_finite("where", name, branch)
    return _mixed(condition.to(dtype), input, other)


def masked_assign(x: torch.Tensor, mask: torch.Tensor, value: torch.Tensor | float) -> torch.Tensor:
    """x with value where the mask is true; x itself stays as it was.

    Equal to `x = x.clone(); x[mask] = value` for a number, and to `x[mask] = value[mask]` for a tensor shaped as x; a
    -0.0 becomes 0.0. What is not masked is computed in x's type, and so it is kept exactly.

    Args:
        x: float or integer tensor, every element finite.
        mask: bool, of x's shape or of its leading axes.
        value: a number, or a tensor that broadcasts to x (not only the elements that are assigned); finite everywhere,
            in x's type too, which it is converted to.

    Returns:
        x's shape and type.

    Raises:
        TypeError: when the mask is not bool, or x is.
        ValueError: when the mask's shape is not that of leading axes of x, the value's does not broadcast to x's (in a
            trace, only the number of axes is looked at), or an element is not finite (eager runs).
    """
    import torch

    if mask.dtype != torch.bool:
        raise TypeError(f"masked_assign: expected a bool mask, got {mask.dtype}")
    if x.dtype == torch.bool:
        raise TypeError("masked_assign: expected numbers, got a bool tensor; use bitwise_and, bitwise_or, bitwise_not")
    if mask.ndim > x.ndim or (not exporting() and mask.shape != x.shape[: mask.ndim]):
        raise ValueError(f"masked_assign: expected a mask of leading axes of {list(x.shape)}, got {list(mask.shape)}")
    mask = mask.reshape(*mask.shape, *[1] * (x.ndim - mask.ndim)) if mask.ndim < x.ndim else mask
    value = torch.as_tensor(value, dtype=x.dtype, device=x.device)
    if value.ndim > x.ndim or (not exporting() and not _broadcasts(value.shape, x.shape)):
        raise ValueError(f"masked_assign: expected a value that broadcasts to {list(x.shape)}, got {list(value.shape)}")
    for name, branch in (("x", x), ("value", value)):
        _refuse_non_finite("masked_assign", name, branch)
    return _mixed(mask.to(x.dtype), value, x)


def _broadcasts(shape: torch.Size, to: torch.Size) -> bool:
    return all(size in (1, wanted) for size, wanted in zip(reversed(shape), reversed(to), strict=False))


def _mixed(chosen: torch.Tensor, yes: torch.Tensor | float, no: torch.Tensor | float) -> torch.Tensor:
    return chosen * yes + (1 - chosen) * no


def _refuse_non_finite(function: str, name: str, branch: torch.Tensor | float) -> None:
    import torch

    if not exporting() and not bool(torch.as_tensor(branch).isfinite().all()):
        raise ValueError(
            f"{function}: {name} is not finite everywhere, and 0 * inf is NaN; use torch.where, or a finite value"
        )
