"""unique(x) -> sort, and keep what differs from the one before

x       3 1 3 0 1
sorted  0 1 1 3 3
first   1 1 0 1 0      -> values 0 1 3, counts 1 2 2
rank    0 1 1 2 2      where each distinct value goes if the result has a fixed size
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from truehalf.exporting.torch_ops.bool_index import bool_index_to_long

if TYPE_CHECKING:
    import torch


def unique(
    input: torch.Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
    *,
    size: int | None = None,
) -> torch.Tensor | tuple[torch.Tensor, ...]:
    """torch.unique(input, return_counts=return_counts) of all elements, ascending.

    Without a size, the length of the result varies from run to run (lint: data-dependent-size). With one, it does not:
    the first `number` entries are the distinct values, the rest repeat the highest of the input and count 0. More
    distinct values than `size`: the lowest ones, and `number` says so.

    Args:
        input: booleans, integers or floats of any shape, flattened; NaN is highest, and each NaN is distinct (as in
            torch; ONNX leaves open how NaN is sorted). TensorRT sorts at most 3840 elements.
        sorted: ascending either way, as torch.unique.
        return_inverse: False.
        return_counts: how often each value occurs, too.
        dim: None.
        size: of the result; the input then has one element at least.

    Returns:
        without size: values [d], or (values, counts int64 [d]).
        with size: (values [size], number int64 []), or (values, number, counts int64 [size]); number is how
            many distinct values there are.

    Raises:
        ValueError: when size is below 1, or an inverse or an axis is asked for.
    """
    import torch

    if return_inverse or dim is not None:
        raise ValueError(
            f"unique: expected return_inverse=False and dim=None, got {return_inverse} and {dim}; torch.unique has them"
        )
    if input.dtype == torch.bool:  # ONNX sorts no booleans
        found = unique(input.int(), return_counts=return_counts, size=size)
        if not isinstance(found, tuple):
            return found.bool()
        return (found[0].bool(), *found[1:])
    flat = input.flatten()
    ordered = flat.topk(flat.shape[0], largest=False).values
    first = torch.cat([torch.ones_like(ordered[:1]).long(), 1 - (ordered[1:] == ordered[:-1]).long()])
    if size is None:
        start = bool_index_to_long(first.bool())
        values = ordered.index_select(0, start)
        return (values, _lengths(start, first)) if return_counts else values
    if size < 1:
        raise ValueError(f"unique: expected a size of 1 or more, got {size}")
    rank = (first.cumsum(0) - 1).clamp(max=size)
    slot = first * rank + (1 - first) * size  # the last slot takes what is no first one, and is cut off
    room = torch.ones(size + 1, dtype=torch.int64, device=input.device)
    values = (room.to(ordered.dtype) * ordered[-1:]).scatter(0, slot, ordered)[:size]
    if not return_counts:
        return values, first.sum()
    place = torch.arange(flat.shape[0], device=input.device)
    start = (room * flat.shape[0]).scatter(0, slot, place)[:size]
    beyond = (rank < size).long().sum().reshape(1)  # where the first value that has no place begins
    return values, first.sum(), torch.cat([start[1:], beyond]).clamp(max=beyond) - start.clamp(max=beyond)


def _lengths(start: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
    """From where runs start, how long each is."""
    import torch

    end = torch.ones_like(start[:1]) * first.shape[0]
    return torch.cat([start[1:], end]) - start
