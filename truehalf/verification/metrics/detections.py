"""Detections: scored boxes, matched one to one.

DETR outputs come in the order of their scores, so a rounding error moves whole rows: elementwise comparison says
nothing. What is compared is which objects were found. For score threshold t and overlap threshold u, two detections of
the same class with IoU >= u are the same one when both scores are >= t, or differ by at most 0.05:

    matched: a reference detection with score >= t and a candidate that is the same one
    missed:      a reference detection with score >= t and no partner
    extra:       a candidate with score >= t and no partner among the reference detections, of whatever score

Pairs are one to one, as many as possible, and among those the best in overlap and score. The slack keeps 0.501 against
0.499 from being a miss and an extra; a detection that falls further below t is lost to every use of the threshold.

    rank change: two reference detections that were matched, the one scored higher there strictly lower now
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypedDict

import numpy as np

from truehalf.codes import coded
from truehalf.io_spec.decode import RANK_FLOOR, Detections
from truehalf.verification.metrics.score_errors import (
    LOW_SCORE,
    all_but_one,
    box_shift,
    rank_errors,
)

SCORE_SLACK = 0.05  # largest difference of scores on two sides of the threshold


class Spread(TypedDict):
    p50: float
    p99: float
    max: float


class DetectionSummary(TypedDict, total=False):
    """Metrics of detections of a set of images (`summarize`).

    Attributes:
        reference, candidate: detections with a score at or above the threshold t (0.5).
        matched: of the reference, with a partner: same class, IoU at the threshold, scores both >= t or at most 0.05
            apart.
        missed: without a partner: label_flips (another class there), displaced (less overlap) and absent.
        extra: of the candidate, without a partner.
        matched_fraction, extra_fraction: of the reference's detections, of the candidate's.
        iou: of pairs: min, p01, p50.
        box_error_px: of pairs: largest difference of a corner coordinate in pixels, p50, p99, max.
        box_error: the same as a share of the largest coordinate of all reference boxes.
        box_shift: largest mean error of a corner, as such a share, less what chance explains.
        score_error: of pairs: |difference| of scores, 0 to 1.
        low_score_error: of reference scores from 0.1 to t: |difference| to the nearest score of its class and place.
        rank_error: |difference| of the i-th best scores of an image, from 0.05 on, the largest left out.
        rank_changes: pairs of matched detections whose scores have the other order.
        self_ap50, self_ap50_95: COCO average precision with the reference's detections as labels: likeness.
        self_ap50_95_drop: of the reference against itself, minus the candidate's.
        low_self_ap50_95_drop: 1 minus self AP50-95 with the reference's detections from 0.1 on as labels.
    """

    images: int
    reference: int
    candidate: int
    matched: int
    missed: int
    label_flips: int
    displaced: int
    absent: int
    extra: int
    matched_fraction: float | None
    extra_fraction: float | None
    iou: dict[str, float] | None
    box_error_px: Spread | None
    box_error: Spread | None
    box_shift: float | None
    score_error: Spread | None
    low_score_error: Spread | None
    rank_error: Spread | None
    rank_changes: int
    reason: str
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
        iou: float64 [m] of the pairs.
        corner_error_px: float64 [m, 4], candidate minus reference, in pixels.
        side_px: float64 [m], the longer side of the reference's box.
        extent_px: the largest corner coordinate of the reference's boxes, in pixels.
        score_error: float64 [m], candidate minus reference.
        low_score_error: float64, of detections below the threshold, see `low_score_errors`.
        relabelled: missed, but a leftover candidate of another class lies there (IoU at or above the threshold).
        displaced: missed, but a leftover candidate of the same class overlaps by less than the IoU threshold.
        absent: missed, and nothing of the kind was left above the threshold.
        extra: candidates without partner.
        rank_error: float64, of scores by rank, see truehalf.verification.metrics.score_errors.
        rank_changes: two of `pairs` of which the reference scores one higher and the candidate the other.
    """

    reference: int
    candidate: int
    pairs: np.ndarray
    iou: np.ndarray
    corner_error_px: np.ndarray
    side_px: np.ndarray
    extent_px: float
    score_error: np.ndarray
    low_score_error: np.ndarray
    rank_error: np.ndarray
    relabelled: list[tuple[int, int]] = field(default_factory=list)
    displaced: list[tuple[int, int]] = field(default_factory=list)
    absent: list[int] = field(default_factory=list)
    extra: list[int] = field(default_factory=list)
    rank_changes: int = 0

    @property
    def box_error_px(self) -> np.ndarray:
        """float64 [m], the largest difference of a corner coordinate, in pixels."""
        return np.asarray(np.abs(self.corner_error_px).max(axis=1, initial=0.0))

    @property
    def missed(self) -> int:
        return len(self.relabelled) + len(self.displaced) + len(self.absent)


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

    A detection that is missed is `relabelled`, `displaced` or `absent`, so a swapped label counts once as missed, and
    the candidate that carries the wrong label once as extra.
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
    still_r, still_c = free_r.copy(), free_c.copy()
    for r, c in relabelled:
        still_r[r], still_c[c] = False, False
    displaced = _assign(likeness, still_r[:, None] & still_c[None, :] & same & (iou > 0) & (iou < iou_threshold))
    for r, _ in displaced:
        still_r[r] = False

    kept = np.array([pair for pair in found if counts_r[pair[0]]], np.int64).reshape(-1, 2)
    pairs = np.stack([pool_r[kept[:, 0]], pool_c[kept[:, 1]]], axis=1)
    boxes = reference.boxes_px[pairs[:, 0]].astype(np.float64)
    return Matching(
        reference=int(counts_r.sum()),
        candidate=int(counts_c.sum()),
        pairs=pairs,
        iou=iou[kept[:, 0], kept[:, 1]],
        corner_error_px=candidate.boxes_px[pairs[:, 1]] - boxes,
        side_px=(boxes[:, 2:] - boxes[:, :2]).max(axis=1, initial=0.0),
        extent_px=float(np.abs(reference.boxes_px).max(initial=0.0)),
        score_error=score_error[kept[:, 0], kept[:, 1]],
        low_score_error=low_score_errors(reference, candidate, score_threshold, iou_threshold),
        rank_error=rank_errors(reference.scores, candidate.scores),
        relabelled=[(int(pool_r[r]), int(pool_c[c])) for r, c in relabelled],
        displaced=[(int(pool_r[r]), int(pool_c[c])) for r, c in displaced],
        absent=[int(pool_r[r]) for r in np.flatnonzero(still_r)],
        extra=[int(pool_c[c]) for c in np.flatnonzero(free_c & counts_c)],
        rank_changes=_reversed_pairs(reference.scores[pairs[:, 0]], candidate.scores[pairs[:, 1]]),
    )


def kept_of(found: Detections, iou_threshold: float = 0.7) -> np.ndarray:
    """bool [n]: what greedy non-maximum suppression keeps, class by class, as whoever deploys anchors does it: of
    detections that overlap by more than the threshold, the best.

    Args:
        found: best first.
    """
    hides = (box_iou(found.boxes_px, found.boxes_px) > iou_threshold) & (found.labels[:, None] == found.labels)
    kept = np.ones(len(found.labels), bool)
    for i in range(len(kept)):
        kept[i + 1 :] &= ~(kept[i] & hides[i, i + 1 :])
    return kept


def of_objects(matching: Matching, reference: Detections, candidate: Detections, score_threshold: float) -> Matching:
    """A matching of anchors, of which several find one object, whose counts are those of objects: of detections that
    non-maximum suppression keeps. Errors are those of all.

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
        displaced=[pair for pair in matching.displaced if ours[pair[0]]],
        absent=[r for r in matching.absent if ours[r]],
        extra=[c for c in matching.extra if theirs[c]],
    )


def low_score_errors(
    reference: Detections, candidate: Detections, score_threshold: float, iou_threshold: float
) -> np.ndarray:
    """float64 [m]: of each reference detection below the threshold, down to LOW_SCORE, how far the nearest score is
    among the candidates of its class that overlap it; those without any are left to average precision.
    """
    low = np.flatnonzero((reference.scores >= LOW_SCORE) & (reference.scores < score_threshold))
    pool = np.flatnonzero(candidate.scores >= RANK_FLOOR)
    same = reference.labels[low][:, None] == candidate.labels[pool][None, :]
    same &= box_iou(reference.boxes_px[low], candidate.boxes_px[pool]) >= iou_threshold
    apart = np.abs(candidate.scores[pool][None, :].astype(np.float64) - reference.scores[low][:, None])
    nearest = np.where(same, apart, np.inf).min(axis=1, initial=np.inf)
    return np.asarray(nearest[np.isfinite(nearest)])


def _reversed_pairs(a: np.ndarray, b: np.ndarray) -> int:
    """Pairs (i, j) with a_i > a_j and b_i < b_j; ties are no reversal."""
    return int(((a[:, None] > a[None, :]) & (b[:, None] < b[None, :])).sum())


def _assign(value: np.ndarray, allowed: np.ndarray) -> list[tuple[int, int]]:
    """One-to-one pairs among the allowed ones: as many as possible, then of the largest total value (each in -1..1)."""
    from scipy.optimize import linear_sum_assignment

    if not allowed.any():
        return []
    one_more_pair = 2.0 * min(value.shape) + 1.0  # outweighs any change of the values
    rows, columns = linear_sum_assignment(np.where(allowed, one_more_pair + value, 0.0), maximize=True)
    return [(int(r), int(c)) for r, c in zip(rows, columns, strict=True) if allowed[r, c]]


def summarize(matchings: Sequence[Matching]) -> DetectionSummary:
    """The metrics of a set of images.

    Returns:
        images; reference and candidate (detections above the threshold); matched, missed (relabelled = label_flips,
        displaced and absent together), extra; matched_fraction (of the reference), extra_fraction (of the candidate);
        iou {min, p01, p50}; {p50, p99, max} of box_error_px, box_error (as a share of the largest extent_px),
        score_error (absolute), low_score_error and rank_error (all but the largest one); box_shift, a share of the
        same extent (truehalf.verification.metrics.score_errors); rank_changes.
        Where the reference holds no detection, nothing was compared: fractions and errors are None, `reason` says so.
    """
    count = {name: sum(getattr(m, name) for m in matchings) for name in ("reference", "candidate", "missed")}
    lists = {
        name: sum(len(getattr(m, name)) for m in matchings) for name in ("relabelled", "displaced", "absent", "extra")
    }
    matched = count["reference"] - count["missed"]
    iou = _joined([m.iou for m in matchings])
    box_error_px = _joined([m.box_error_px for m in matchings])
    extent_px = max((m.extent_px for m in matchings), default=0)
    score_error = np.abs(_joined([m.score_error for m in matchings]))
    low_score_error = _joined([m.low_score_error for m in matchings])
    rank_error = _joined([m.rank_error for m in matchings])
    summary: DetectionSummary = {
        "images": len(matchings),
        "reference": count["reference"],
        "candidate": count["candidate"],
        "matched": matched,
        "missed": count["missed"],
        "label_flips": lists["relabelled"],
        "displaced": lists["displaced"],
        "absent": lists["absent"],
        "extra": lists["extra"],
        "matched_fraction": matched / count["reference"] if count["reference"] else None,
        "extra_fraction": lists["extra"] / max(count["candidate"], 1) if count["reference"] else None,
        "iou": {"min": float(iou.min()), "p01": float(np.quantile(iou, 0.01)), "p50": float(np.median(iou))}
        if len(iou)
        else None,
        "box_error_px": _spread(box_error_px),
        "box_error": _spread(box_error_px / (extent_px or 1.0)),
        "box_shift": box_shift([(m.corner_error_px / (extent_px or 1.0), m.side_px) for m in matchings]),
        "score_error": _spread(score_error),
        "low_score_error": _spread(low_score_error),
        "rank_error": _spread(all_but_one(rank_error)),
        "rank_changes": sum(m.rank_changes for m in matchings),
    }
    if not count["reference"]:
        reason = "the reference has no detection above the score threshold: nothing was compared"
        summary["reason"] = coded("nothing-compared", reason)
    return summary


def _joined(arrays: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.zeros(0), *arrays])


def _spread(values: np.ndarray) -> Spread | None:
    if not len(values):
        return None
    return {"p50": float(np.median(values)), "p99": float(np.quantile(values, 0.99)), "max": float(values.max())}
