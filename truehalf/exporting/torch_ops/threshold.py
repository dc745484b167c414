"""x[scores > threshold] -> the best k, and which of them pass: sizes that do not vary"""

from __future__ import annotations

from typing import TYPE_CHECKING

from truehalf.linting.support import TOPK_MAX

if TYPE_CHECKING:
    import torch


def threshold_topk(scores: torch.Tensor, threshold: float, k: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The k highest scores along the last axis, and which of them exceed a threshold.

    `values[kept]` are `scores[scores > threshold]` in descending order, and `index[kept]` their places, as long as no
    more than k exceed the threshold; of more, the best k. Weigh by `kept`, or select by it outside the engine.

    Args:
        scores: float [..., n], without NaN.
        threshold: scores must exceed it.
        k: 1 to n, and at most 3840, which is TensorRT's limit.

    Returns:
        values: float [..., k], descending.
        index: int64 [..., k].
        kept: bool [..., k].

    Raises:
        ValueError: when k is below 1 or beyond 3840.
    """
    if not 1 <= k <= TOPK_MAX:
        raise ValueError(f"threshold_topk: expected k from 1 to {TOPK_MAX}, got {k}")
    values, index = scores.topk(k)
    return values, index, values > threshold
