"""squeeze(x, dim) -> x.select(dim, 0)

Where the exporter does not know that the axis has size 1, squeeze is an If whose branches differ in rank.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from truehalf.exporting.torch_ops.exporting import exporting

if TYPE_CHECKING:
    import torch


def squeeze(input: torch.Tensor, dim: int | tuple[int, ...] | None = None) -> torch.Tensor:
    """torch.squeeze(input, dim) of axes that always have size 1.

    Args:
        input: of any type; axis `dim` has size 1.
        dim: the axis or axes, from the end where negative. It must be given.

    Returns:
        input's type, without the axes.

    Raises:
        TypeError: when no axis is named: which ones have size 1 is then a question for every run.
        ValueError: when an axis has another size, where torch would leave input as it is. Checked in eager runs.
    """
    if dim is None:
        raise TypeError("squeeze: expected dim, the axis or axes that have size 1; without it, the rank would vary")
    axes = (dim,) if isinstance(dim, int) else tuple(dim)
    for axis in axes:
        if not exporting() and input.shape[axis] != 1:
            raise ValueError(f"squeeze: expected axis {axis} of size 1, got shape {list(input.shape)}")
    for axis in sorted({axis % input.ndim for axis in axes}, reverse=True):
        input = input.select(axis, 0)
    return input
