"""where(c, x, y) -> c * x + (1 - c) * y, exact for finite x and y, as 0 * x is 0

0 * inf and 0 * NaN are NaN: a branch that may be infinite cannot be mixed so, nor one beyond 65504 that is to run in
FP16. DETR anchors hold torch.finfo(float32).max in such a branch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stages.models.trt_friendly.exporting import exporting

if TYPE_CHECKING:
    import torch


def where(condition: torch.Tensor, x: torch.Tensor | float, y: torch.Tensor | float) -> torch.Tensor:
    """torch.where(condition, x, y) of finite branches.

    Args:
        condition: bool.
        x, y: tensors or numbers, at least one a tensor that is not bool, of shapes that broadcast with the condition's.
            Every element finite, also those that are not chosen. Integers must not be near their type's limits.

    Returns:
        the broadcast shape, in the type that torch promotes x and y to; equal to torch.where, but a chosen -0.0 is 0.0.

    Raises:
        TypeError: when the condition is not bool, or both branches are bool.
        ValueError: when an element of a branch is not finite. Checked in eager runs; a trace does not look at values.
    """
    import torch

    if condition.dtype != torch.bool:
        raise TypeError(f"where: expected a bool condition, got {condition.dtype}")
    dtype = torch.result_type(x, y)
    if dtype == torch.bool:
        raise TypeError("where: both branches are bool; use bitwise_and, bitwise_or and bitwise_not")
    for name, branch in (("x", x), ("y", y)):
        _refuse_non_finite(name, branch)
    chosen = condition.to(dtype)
    return chosen * x + (1 - chosen) * y


def masked_assign(x: torch.Tensor, mask: torch.Tensor, value: torch.Tensor | float) -> torch.Tensor:
    """x with value where the mask is true; x itself stays as it was.

    Equal to `x = x.clone(); x[mask] = value` for a number, and to `x[mask] = value[mask]` for a tensor shaped as x.

    Args:
        x: float or integer tensor, every element finite.
        mask: bool, of x's shape or of its leading axes.
        value: a number, or a tensor that broadcasts to x (not only the elements that are assigned), finite everywhere.

    Returns:
        x's shape and type.

    Raises:
        TypeError: when the mask is not bool.
        ValueError: when the mask's shape is not that of leading axes of x, or an element is not finite (eager runs).
    """
    if mask.ndim > x.ndim or (not exporting() and mask.shape != x.shape[: mask.ndim]):
        raise ValueError(f"masked_assign: expected a mask of leading axes of {list(x.shape)}, got {list(mask.shape)}")
    mask = mask.reshape(*mask.shape, *[1] * (x.ndim - mask.ndim)) if mask.ndim < x.ndim else mask
    return where(mask, value, x).to(x.dtype)


def _refuse_non_finite(name: str, branch: torch.Tensor | float) -> None:
    import torch

    if not exporting() and not bool(torch.as_tensor(branch).isfinite().all()):
        raise ValueError(
            f"where: {name} is not finite everywhere, and 0 * inf is NaN; use torch.where, or a finite value"
        )
