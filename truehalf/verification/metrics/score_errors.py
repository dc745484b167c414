"""Errors of scores, of matched detections and of the ranks of an image; and what boxes are shifted by.

score error   of a matched detection: candidate minus reference
    (truehalf.verification.metrics.detections.Matching)
low score     of a detection below the score threshold, down to LOW_SCORE: to the nearest score of an overlapping
    error     candidate of its class (truehalf.verification.metrics.detections.low_score_errors)
rank error    |o_(i) - r_(i)|, the i-th best score of an image on both sides, 0 where a side has none; over the ranks
              at which one of the two is RANK_FLOOR or more

Ranks need no pairs, so they see what matching at a score threshold does not: detections below it that are missing,
invented, or scored otherwise, of any class and place. They do not see that rows change places.

One error is left out of the ranks' p99: one detection that rounding moves across a score limit inside the model is as
good as its reference.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from truehalf.io_spec.decode import RANK_FLOOR

# Measured on 500 images, of the FP16 files of both embedded detectors (1585 detections at 0.5 and more): 0.25 and
# 0.32 % of all are beyond it.
SCORE_ERROR = 0.02
ROUNDED_CORNER = 0.0003  # spread of a corner's error, as a share of the image, measured so, too
LOW_SCORE = 0.1  # least score of a label of self AP; of labels from 0.05 on, rounding costs up to 0.01 of it


def rank_errors(reference: np.ndarray, candidate: np.ndarray) -> np.ndarray:
    """float64 [ranks] of the scores of one image, [n] and [m], 0 to 1, in any order."""
    ranks = max(len(reference), len(candidate))
    r, c = (np.sort(np.pad(np.asarray(s, np.float64), (0, ranks - len(s))))[::-1] for s in (reference, candidate))
    return np.asarray(np.abs(c - r)[np.maximum(r, c) >= RANK_FLOOR])


def all_but_one(errors: np.ndarray) -> np.ndarray:
    """Without the largest, where there are others."""
    return np.sort(errors)[:-1] if len(errors) > 1 else errors


def box_shift(matched: Sequence[tuple[np.ndarray, np.ndarray]]) -> float | None:
    """The largest average error of a corner coordinate, of all boxes and of the larger half, less what chance explains:
    three standard errors. Overlaps of large boxes do not show it; rounding has no direction. None without any.

    Args:
        matched: by image, [m, 4] signed errors as a share of the image, and [m] the lengths of the boxes.
    """
    errors, sides = (np.concatenate(arrays) for arrays in zip(*matched, strict=True)) if matched else (np.zeros(0),) * 2
    if not len(sides):
        return None
    shifts = []
    for some in (errors, errors[sides >= np.median(sides)]):
        chance = 3 * np.maximum(some.std(axis=0), ROUNDED_CORNER) / np.sqrt(len(some))
        shifts.append(float((np.abs(some.mean(axis=0)) - chance).max()))
    return max(0.0, *shifts)
