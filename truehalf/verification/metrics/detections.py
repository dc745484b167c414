"""Detections: scored boxes, matched one to one.

DETR outputs come in the order of their scores, so a rounding error moves whole rows: elementwise comparison says
nothing. What is compared is which objects were found. For score threshold t and overlap threshold u, two detections of
the same class with IoU >= u are the same one when both scores are >= t, or differ by at most 0.05:

    matched: a reference detection with score >= t and a candidate that is the same one
    missed:      a reference detection with score >= t and no partner
    extra:       a candidate with score >= t and no partner among the reference detections, of whatever score

Pairs are one to one, as many as possible, and among those the best in overlap and score. The slack keeps 0.501 against
0.499 from being a miss and an extra; a detection that falls further below t is lost to every use of the threshold.

    score error   of a matched detection: candidate minus reference
    low score     of a detection below the score threshold, down to LOW_SCORE: to the nearest score of an overlapping
        error     candidate of its class
    rank error    |o_(i) - r_(i)|, the i-th best score of an image on both sides, 0 where a side has none; over the
                  ranks at which one of the two is RANK_FLOOR or more

Ranks need no pairs, so they see detections below the score threshold that are missing, invented, or scored otherwise,
of any class and place. One error is left out of the ranks' p99: a detection that rounding moves across a score limit
inside the model is as good as its reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypedDict

import numpy as np

from truehalf.io_spec.decode import RANK_FLOOR, Detections, class_scores
from truehalf.io_spec.outputs import Outputs, columns_of
from truehalf.io_spec.spec import IoSpec
from truehalf.verification.metrics.yardstick import spread_of

SCORE_SLACK = 0.05  # largest difference of scores on two sides of the threshold
# Measured on 500 images, of the FP16 files of both embedded detectors (1585 detections at 0.5 and more): 0.25 and
# 0.32 % of all are beyond it.
SCORE_ERROR = 0.02
ROUNDED_CORNER = 0.0003  # spread of a corner's error, as a share of the image, measured so, too
LOW_SCORE = 0.1  # least score of a label of self AP; of labels from 0.05 on, rounding costs up to 0.01 of it
NEAR = 0.02  # of the spread of logits


class Spread(TypedDict):
    p50: float
    p99: float
    max: float


class DetectionSummary(TypedDict, total=False):
    """Metrics of detections of a set of images (`summarize`); None where nothing of the kind was compared.

    Attributes:
        reference, candidate: detections with a score at or above the threshold t (0.5).
        matched: of the reference, with a partner: same class, IoU at the threshold, scores both >= t or at most 0.05
            apart.
        missed: without a partner.
        label_flips: of those, the ones with another class in their place.
        extra: of the candidate, without a partner.
        matched_fraction, extra_fraction: of the reference's detections, of the candidate's.
        box_error_px: of pairs: largest difference of a corner coordinate in pixels, p50, p99, max.
        box_error: the same as a share of the largest coordinate of all reference boxes.
        box_shift: largest mean error of a corner, as such a share, less what chance explains.
        score_error: of pairs: |difference| of scores, 0 to 1.
        low_score_error: of reference scores from 0.1 to t: |difference| to the nearest score of its class and place.
        rank_error: |difference| of the i-th best scores of an image, from 0.05 on, the largest left out.
        self_ap50, self_ap50_95: COCO average precision with the reference's detections as labels: likeness.
        self_ap50_95_drop: of the reference against itself, minus the candidate's.
        low_self_ap50_95_drop: 1 minus self AP50-95 with the reference's detections from 0.1 on as labels.
    """

    reference: int
    candidate: int
    matched: int
    missed: int
    label_flips: int
    extra: int
    matched_fraction: float | None
    extra_fraction: float | None
    box_error_px: Spread | None
    box_error: Spread | None
    box_shift: float | None
    score_error: Spread | None
    low_score_error: Spread | None
    rank_error: Spread | None
    self_ap50: float | None
    self_ap50_95: float | None
    self_ap50_95_drop: float | None
    low_self_ap50_95_drop: float | None


@dataclass(frozen=True)
class Matching:
    """How the detections of one image were matched; numbers are positions in the two `Detections`.

    Attributes:
        reference, candidate: detections with a score at or above the threshold.
        pairs: int64 [m, 2], (reference, candidate) of each reference detection that was matched.
        corner_error_px: float64 [m, 4], candidate minus reference, in pixels.
        side_px: float64 [m], the longer side of the reference's box.
        extent_px: the largest corner coordinate of the reference's boxes, in pixels.
        score_error: float64 [m], candidate minus reference.
        low_score_error: float64, of detections below the threshold, see `low_score_errors`.
        rank_error: float64, see `rank_errors`.
        relabelled: missed, but a leftover candidate of another class lies there (IoU at or above the threshold).
        absent: missed, and no such candidate.
        extra: candidates without partner.
    """

    reference: int
    candidate: int
    pairs: np.ndarray
    corner_error_px: np.ndarray
    side_px: np.ndarray
    extent_px: float
    score_error: np.ndarray
    low_score_error: np.ndarray
    rank_error: np.ndarray
    relabelled: list[tuple[int, int]] = field(default_factory=list)
    absent: list[int] = field(default_factory=list)
    extra: list[int] = field(default_factory=list)

    @property
    def box_error_px(self) -> np.ndarray:
        """float64 [m], the largest difference of a corner coordinate, in pixels."""
        return np.asarray(np.abs(self.corner_error_px).max(axis=1, initial=0.0))

    @property
    def missed(self) -> int:
        return len(self.relabelled) + len(self.absent)


# --- matching ---------------------------------------------------------------------------------------------------------


def box_iou(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Intersection over union of xyxy boxes [n, 4] and [m, 4] -> [n, m]; 0 where a box has no area."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    low = np.maximum(a[:, None, :2], b[None, :, :2])
    high = np.minimum(a[:, None, 2:], b[None, :, 2:])
    intersection = np.prod(np.clip(high - low, 0.0, None), axis=2)
    areas = [np.prod(np.clip(boxes[:, 2:] - boxes[:, :2], 0.0, None), axis=1) for boxes in (a, b)]
    union = areas[0][:, None] + areas[1][None, :] - intersection
    return np.asarray(np.divide(intersection, union, out=np.zeros_like(intersection), where=union > 0))


def match(
    reference: Detections, candidate: Detections, score_threshold: float = 0.5, iou_threshold: float = 0.9
) -> Matching:
    """Find the detections of one image again (the rule stands at the top of this module).

    A swapped label counts once as missed, and the candidate that carries the wrong label once as extra.
    """
    floor = score_threshold - SCORE_SLACK
    pool_r = np.flatnonzero(reference.scores >= floor)
    pool_c = np.flatnonzero(candidate.scores >= floor)
    counts_r = reference.scores[pool_r] >= score_threshold
    counts_c = candidate.scores[pool_c] >= score_threshold
    iou = box_iou(reference.boxes_px[pool_r], candidate.boxes_px[pool_c])
    same = reference.labels[pool_r][:, None] == candidate.labels[pool_c][None, :]
    score_error = candidate.scores[pool_c][None, :].astype(np.float64) - reference.scores[pool_r][:, None]
    likeness = iou - np.abs(score_error)
    near = (counts_r[:, None] & counts_c[None, :]) | (np.abs(score_error) <= SCORE_SLACK)

    found = _assign(likeness, same & near & (iou >= iou_threshold))
    free_r, free_c = counts_r.copy(), np.ones(len(pool_c), bool)
    for r, c in found:
        free_r[r], free_c[c] = False, False
    relabelled = _assign(likeness, free_r[:, None] & free_c[None, :] & ~same & (iou >= iou_threshold))
    absent = free_r.copy()
    for r, _ in relabelled:
        absent[r] = False

    kept = np.array([pair for pair in found if counts_r[pair[0]]], np.int64).reshape(-1, 2)
    pairs = np.stack([pool_r[kept[:, 0]], pool_c[kept[:, 1]]], axis=1)
    boxes = reference.boxes_px[pairs[:, 0]].astype(np.float64)
    return Matching(
        reference=int(counts_r.sum()),
        candidate=int(counts_c.sum()),
        pairs=pairs,
        corner_error_px=candidate.boxes_px[pairs[:, 1]] - boxes,
        side_px=(boxes[:, 2:] - boxes[:, :2]).max(axis=1, initial=0.0),
        extent_px=float(np.abs(reference.boxes_px).max(initial=0.0)),
        score_error=score_error[kept[:, 0], kept[:, 1]],
        low_score_error=low_score_errors(reference, candidate, score_threshold, iou_threshold),
        rank_error=rank_errors(reference.scores, candidate.scores),
        relabelled=[(int(pool_r[r]), int(pool_c[c])) for r, c in relabelled],
        absent=[int(pool_r[r]) for r in np.flatnonzero(absent)],
        extra=[int(pool_c[c]) for c in np.flatnonzero(free_c & counts_c)],
    )


def kept_of(found: Detections, iou_threshold: float = 0.7) -> np.ndarray:
    """Apply greedy non-maximum suppression, class by class, as a deployment of anchors does: bool [n], of detections
    that overlap by more than the threshold the best is kept.

    Args:
        found: best first.
    """
    hides = (box_iou(found.boxes_px, found.boxes_px) > iou_threshold) & (found.labels[:, None] == found.labels)
    kept = np.ones(len(found.labels), bool)
    for i in range(len(kept)):
        kept[i + 1 :] &= ~(kept[i] & hides[i, i + 1 :])
    return kept


def of_objects(matching: Matching, reference: Detections, candidate: Detections, score_threshold: float) -> Matching:
    """Count objects in place of anchors, of which several detect one object: counts are of detections that non-maximum
    suppression keeps, errors those of all.

    Args:
        reference, candidate: best first.
    """
    both = (reference, candidate)
    ours, theirs = (kept_of(each.at(slice(int((each.scores >= score_threshold).sum())))) for each in both)
    return replace(
        matching,
        reference=int(ours.sum()),
        candidate=int(theirs.sum()),
        relabelled=[pair for pair in matching.relabelled if ours[pair[0]]],
        absent=[r for r in matching.absent if ours[r]],
        extra=[c for c in matching.extra if theirs[c]],
    )


def _assign(value: np.ndarray, allowed: np.ndarray) -> list[tuple[int, int]]:
    """One-to-one pairs among the allowed ones: as many as possible, then of the largest total value (each in -1..1)."""
    from scipy.optimize import linear_sum_assignment

    if not allowed.any():
        return []
    one_more_pair = 2.0 * min(value.shape) + 1.0  # outweighs any change of the values
    rows, columns = linear_sum_assignment(np.where(allowed, one_more_pair + value, 0.0), maximize=True)
    return [(int(r), int(c)) for r, c in zip(rows, columns, strict=True) if allowed[r, c]]


# --- near ties of classes ---------------------------------------------------------------------------------------------


def near_labels(outputs: Outputs, spec: IoSpec) -> list[np.ndarray]:
    """Of a softmax detector, by sample and in the order of its detections, bool [n, classes]: the class is as good as
    the label, its logit within NEAR of the logits' spread. Empty of other models.
    """
    declared = columns_of(spec).get("scores")
    if declared is None or declared.activation != "softmax":
        return []
    logits = np.asarray(outputs[declared.name], np.float64)
    scores = class_scores(logits, declared)
    order = np.argsort(-scores.max(axis=2), axis=1, kind="stable")
    classes = np.where(np.isfinite(logits), logits, -np.inf)[..., : scores.shape[2]]
    with np.errstate(invalid="ignore"):
        near = classes.max(axis=2, keepdims=True) - classes <= NEAR * spread_of(logits)
    return list(np.take_along_axis(near, order[..., None], axis=1))


def with_tied_labels(
    reference: Detections, candidate: Detections, tied: np.ndarray, iou_threshold: float
) -> tuple[Detections, int]:
    """Give the candidate the reference's label on each detection that is the same one but for a near tie of classes;
    return how many they are, too.

    Args:
        tied: bool [n, classes], of each reference detection the classes that are as good as its label.
    """
    if not (tied.sum(axis=1) > 1).any():
        return candidate, 0
    labels = candidate.labels.copy()
    pairs = match(reference, candidate, LOW_SCORE, iou_threshold).relabelled
    settled = [(r, c) for r, c in pairs if labels[c] < tied.shape[1] and tied[r, labels[c]]]
    for r, c in settled:
        labels[c] = reference.labels[r]
    return replace(candidate, labels=labels), len(settled)


# --- errors of scores and boxes ---------------------------------------------------------------------------------------


def low_score_errors(
    reference: Detections, candidate: Detections, score_threshold: float, iou_threshold: float
) -> np.ndarray:
    """Measure float64 [m]: of each reference detection below the threshold, down to LOW_SCORE, the distance to the
    nearest score among the candidates of its class that overlap it; those without any are left to average precision.
    """
    low = np.flatnonzero((reference.scores >= LOW_SCORE) & (reference.scores < score_threshold))
    pool = np.flatnonzero(candidate.scores >= RANK_FLOOR)
    same = reference.labels[low][:, None] == candidate.labels[pool][None, :]
    same &= box_iou(reference.boxes_px[low], candidate.boxes_px[pool]) >= iou_threshold
    apart = np.abs(candidate.scores[pool][None, :].astype(np.float64) - reference.scores[low][:, None])
    nearest = np.where(same, apart, np.inf).min(axis=1, initial=np.inf)
    return np.asarray(nearest[np.isfinite(nearest)])


def rank_errors(reference: np.ndarray, candidate: np.ndarray) -> np.ndarray:
    """Measure float64 [ranks] of the scores of one image, [n] and [m], 0 to 1, in any order."""
    ranks = max(len(reference), len(candidate))
    r, c = (np.sort(np.pad(np.asarray(s, np.float64), (0, ranks - len(s))))[::-1] for s in (reference, candidate))
    return np.asarray(np.abs(c - r)[np.maximum(r, c) >= RANK_FLOOR])


def box_shift(matched: Sequence[tuple[np.ndarray, np.ndarray]]) -> float | None:
    """Measure the largest average error of a corner coordinate, of all boxes and of the larger half, less three
    standard errors, which chance explains. Overlaps of large boxes do not show it; rounding has no direction. None
    without any.

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


def summarize(matchings: Sequence[Matching], reference: int | None = None) -> DetectionSummary:
    """Metrics of detections of a set of images; where the reference holds none, fractions are None, but for
    `extra_fraction` of a candidate that holds some.

    Args:
        reference: detections of the reference; None: those in the matchings, of a reference that may have decided on
            what the candidate computes (truehalf.verification.near_ties).
    """
    reference = sum(each.reference for each in matchings) if reference is None else reference
    candidate, missed = (sum(getattr(each, name) for each in matchings) for name in ("candidate", "missed"))
    extra = sum(len(each.extra) for each in matchings)
    matched = max(reference - missed, 0)
    extent_px = max((each.extent_px for each in matchings), default=0) or 1.0
    box_error_px = _joined([each.box_error_px for each in matchings])
    ranks = np.sort(_joined([each.rank_error for each in matchings]))
    return {
        "reference": reference,
        "candidate": candidate,
        "matched": matched,
        "missed": missed,
        "label_flips": sum(len(each.relabelled) for each in matchings),
        "extra": extra,
        "matched_fraction": matched / reference if reference else None,
        "extra_fraction": extra / max(candidate, 1) if reference or extra else None,
        "box_error_px": _spread(box_error_px),
        "box_error": _spread(box_error_px / extent_px),
        "box_shift": box_shift([(each.corner_error_px / extent_px, each.side_px) for each in matchings]),
        "score_error": _spread(np.abs(_joined([each.score_error for each in matchings]))),
        "low_score_error": _spread(_joined([each.low_score_error for each in matchings])),
        "rank_error": _spread(ranks[:-1] if len(ranks) > 1 else ranks),
    }


def _joined(arrays: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.zeros(0), *arrays])


def _spread(values: np.ndarray) -> Spread | None:
    if not len(values):
        return None
    return {"p50": float(np.median(values)), "p99": float(np.quantile(values, 0.99)), "max": float(values.max())}
