"""Which other selections of a NonMaxSuppression rounding explains: those that it would make, in this order, of scores
that are `most` off, and of overlaps that are OVERLAP off.

    taken     scores more than the limit, and those that follow no more than it does; overlaps no box before it
    left      scores no more than the limit, or than the last one taken where there is room for no more; or overlaps a
              box that was taken

each with what rounding explains.
"""

from __future__ import annotations

import numpy as np

OVERLAP = 0.02  # corners off by half a step of FP16, 2^-11 of where they are, of boxes that are a tenth of that long
Limits = tuple[float, float, float]  # boxes of a class; their overlap; score


def is_selection(chosen: np.ndarray, boxes: np.ndarray, scores: np.ndarray, limits: Limits, most: float) -> bool:
    """Whether it is one.

    Args:
        chosen: [selected, 3]: image, class and box.
        boxes: float64 [images, boxes, 4], lower and upper corners.
        scores: float64 [images, classes, boxes].
    """
    groups = chosen[:, 0] * scores.shape[1] + chosen[:, 1]
    if (chosen < 0).any() or (chosen >= (*scores.shape[:2], scores.shape[2])).any() or (np.diff(groups) < 0).any():
        return False
    return all(
        _is_of_class(chosen[groups == image * scores.shape[1] + label, 2], boxes[image], row, limits, most)
        for image, rows in enumerate(scores)
        for label, row in enumerate(rows)
    )


def _is_of_class(taken: np.ndarray, boxes: np.ndarray, scores: np.ndarray, limits: Limits, most: float) -> bool:
    room, overlap, score = limits
    own = scores[taken]
    if len(taken) > room or len({*taken.tolist()}) < len(taken) or (own <= score - most).any():
        return False
    if (np.maximum.accumulate(own[::-1])[::-1] > own + most).any():
        return False
    between = _overlaps(boxes[taken], boxes[taken])
    if (np.tril(between, -1) > overlap + OVERLAP).any():
        return False
    least = score if len(taken) < room else max(score, float(own.min(initial=np.inf)))
    left = np.flatnonzero(scores > least + most)
    left = left[~np.isin(left, taken)]
    held = (_overlaps(boxes[left], boxes[taken]) > overlap - OVERLAP) & (own >= scores[left][:, None] - most)
    return bool(held.any(axis=1).all())


def _overlaps(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Intersection over union [a, b]."""
    low, high = np.maximum(a[:, None, :2], b[None, :, :2]), np.minimum(a[:, None, 2:], b[None, :, 2:])
    shared = np.clip(high - low, 0, None).prod(axis=2)
    sizes = [(each[:, 2:] - each[:, :2]).prod(axis=1) for each in (a, b)]
    whole = sizes[0][:, None] + sizes[1][None] - shared
    return np.asarray(np.divide(shared, whole, out=np.zeros_like(shared), where=whole > 0))
