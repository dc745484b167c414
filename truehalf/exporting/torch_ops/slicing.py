"""x[start : start + length] -> x.index_select(where start <= arange < start + length)

A Slice takes its ends on the host; ends that are computed on the device it cannot have. The size still varies, and
lint says so of the graph (data-dependent-size).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from truehalf.exporting.torch_ops.bitwise import bitwise_and
from truehalf.exporting.torch_ops.bool_index import bool_index_to_long

if TYPE_CHECKING:
    import torch


def dynamic_slice(
    x: torch.Tensor, length: torch.Tensor | int, *, start: torch.Tensor | int = 0, dim: int = 0
) -> torch.Tensor:
    """x[start : start + length] along an axis, with start and length computed from data.

    The size of the result varies from run to run; where it need not, weigh by a mask instead.

    Args:
        x: of any type, [..., n, ...].
        length: integer, a tensor of one element or a number, 0 or more; what goes beyond n is cut off.
        start: integer, as length; 0 or more.
        dim: the axis.

    Returns:
        x's type, [..., k, ...] with k = min(length, n - start), 0 at least.
    """
    import torch

    place = torch.arange(x.shape[dim], device=x.device)
    return x.index_select(dim, bool_index_to_long(bitwise_and(place >= start, place < start + length)))
