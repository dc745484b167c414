"""x[mask] -> x[bool_index_to_long(mask)]: NonZero of integers and Gather, not NonZero and GatherND of booleans

The form changes, the size does not: it is as many as are true, which only a run knows. Lint says so of the graph
(data-dependent-size), as of any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def bool_index_to_long(mask: torch.Tensor) -> torch.Tensor:
    """mask.nonzero()[:, 0]: where the mask is true, in ascending order.

    Where the number of rows need not vary, weigh by the mask or take threshold_topk: for a size that only a run knows,
    TensorRT waits for the device, and sizes all that follows for the worst case.

    Args:
        mask: bool [n]; flatten it (and what it indexes) if it has more axes.

    Returns:
        int64 [k], k of them true; k may be 0.

    Raises:
        ValueError: when the mask has more than one axis.
        TypeError: when it is not bool.
    """
    import torch

    if mask.dtype != torch.bool:
        raise TypeError(f"bool_index_to_long: expected a bool tensor, got {mask.dtype}")
    if mask.ndim != 1:
        raise ValueError(f"bool_index_to_long: expected one axis, got shape {list(mask.shape)}; flatten the mask")
    place = torch.arange(1, mask.shape[0] + 1, device=mask.device) * mask.long()  # 0 where false
    return place.nonzero().select(1, 0)
