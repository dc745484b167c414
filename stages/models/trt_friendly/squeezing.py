"""x.squeeze(dim) -> x.select(dim, 0)

Where the exporter does not know that the axis has size 1, squeeze is an If whose branches differ in rank.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stages.models.trt_friendly.exporting import exporting

if TYPE_CHECKING:
    import torch


def squeeze(x: torch.Tensor, dim: int) -> torch.Tensor:
    """x.squeeze(dim) of an axis that always has size 1.

    Args:
        x: of any type; axis `dim` has size 1.
        dim: the axis, from the end where negative.

    Returns:
        x's type, without the axis.

    Raises:
        ValueError: when the axis has another size, where torch would leave x as it is. Checked in eager runs.
    """
    if not exporting() and x.shape[dim] != 1:
        raise ValueError(f"squeeze: expected axis {dim} of size 1, got shape {list(x.shape)}")
    return x.select(dim, 0)
