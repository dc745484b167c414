"""Judges of a task: what two models make of the same inputs, compared as the application that uses them would.

Each judge takes two lists of results (tests/trained/reading.py makes them of output arrays), the reference's and the
candidate's, one for each input, and returns a Judgement. `same` allows one decision in a hundred to differ, and a
decision that stands within a margin of its threshold in the reference may turn: such a one turns with the last bit of
an input, too. Nothing of the library under test is imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

ALLOWED = 0.01  # share of decisions that may differ
MARGIN = 0.02  # of a score between 0 and 1 around its threshold


@dataclass(frozen=True)
class Judgement:
    """Whether two models do the same, and figures that say so: counts, and the largest differences."""

    same: bool
    figures: dict[str, float | int | str] = field(default_factory=dict)


@dataclass(frozen=True)
class Objects:
    """Detections of one image down to a score below the threshold.

    Attributes:
        boxes: (n, 4): left, top, right, bottom in pixels.
        labels: class of each.
    """

    boxes: np.ndarray
    scores: np.ndarray
    labels: np.ndarray


def objects(
    reference: Sequence[Objects], candidate: Sequence[Objects], *, threshold: float, overlap: float = 0.9
) -> Judgement:
    """Detections above a threshold are found again, one to one, with the same label and boxes that overlap."""
    count = missed = extra = 0
    overlaps, scores = [1.0], [0.0]
    for ours, theirs in zip(reference, candidate, strict=True):
        pairs = _pairs(ours, theirs, overlap)
        first, second = dict(pairs), {j: i for i, j in pairs}
        for i in np.flatnonzero(ours.scores >= threshold):
            count += 1
            if i in first:
                scores.append(abs(float(ours.scores[i] - theirs.scores[first[i]])))
                overlaps.append(float(_iou(ours.boxes[i], theirs.boxes[first[i]][None])[0]))
            stays = i in first and theirs.scores[first[i]] >= threshold
            missed += bool(not stays and ours.scores[i] >= threshold + MARGIN)
        for j in np.flatnonzero(theirs.scores >= threshold + MARGIN):
            extra += bool(j not in second or ours.scores[second[j]] < threshold - MARGIN)
    same = count > 0 and missed + extra <= ALLOWED * count
    figures: dict[str, float | int | str] = {"objects": count, "missed": missed, "extra": extra}
    return Judgement(same, figures | {"least overlap": min(overlaps), "largest score change": max(scores)})


def _pairs(ours: Objects, theirs: Objects, overlap: float) -> list[tuple[int, int]]:
    """One to one, largest overlap first, of the same label."""
    if not len(ours.boxes) or not len(theirs.boxes):
        return []
    table = np.stack([_iou(box, theirs.boxes) for box in ours.boxes])
    table[ours.labels[:, None] != theirs.labels[None]] = 0
    found = []
    while table.size and table.max() >= overlap:
        i, j = np.unravel_index(table.argmax(), table.shape)
        found.append((int(i), int(j)))
        table[i], table[:, j] = 0, 0
    return found


def _iou(box: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    sides = np.minimum(box[2:], boxes[:, 2:]) - np.maximum(box[:2], boxes[:, :2])
    shared = np.clip(sides, 0, None).prod(1)
    union = (box[2:] - box[:2]).prod() + (boxes[:, 2:] - boxes[:, :2]).prod(1) - shared
    return np.asarray(shared / np.maximum(union, 1e-9))


def texts(reference: Sequence[Sequence[object]], candidate: Sequence[Sequence[object]]) -> Judgement:
    """Sequences of characters or tokens are equal but for one edit in a hundred."""
    length = sum(map(len, reference))
    edits = sum(_edits(a, b) for a, b in zip(reference, candidate, strict=True))
    equal = sum(list(a) == list(b) for a, b in zip(reference, candidate, strict=True))
    figures: dict[str, float | int | str] = {"texts": len(reference), "equal": equal, "length": length, "edits": edits}
    return Judgement(length > 0 and edits <= ALLOWED * length, figures)


def _edits(a: Sequence[object], b: Sequence[object]) -> int:
    """Insertions, deletions and replacements that make one of the other."""
    row = list(range(len(b) + 1))
    for i, one in enumerate(a, 1):
        before, row = row, [i]
        for j, other in enumerate(b, 1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (one != other)))
    return row[-1]


def classes(reference: Sequence[np.ndarray], candidate: Sequence[np.ndarray]) -> Judgement:
    """The best class of each row of probabilities is the same, unless two are within the margin in the reference."""
    ours, theirs = (np.concatenate([np.atleast_2d(each) for each in some]) for some in (reference, candidate))
    if ours.shape != theirs.shape:
        return Judgement(False, {"rows": len(ours), "shape": str(theirs.shape)})
    best = ours.argmax(1)
    now = np.nan_to_num(theirs, nan=-np.inf).argmax(1)
    behind = ours.max(1) - ours[np.arange(len(ours)), now]
    other, tied = int((now != best).sum()), int(((now != best) & (behind < MARGIN)).sum())
    figures: dict[str, float | int | str] = {"rows": len(ours), "same": len(ours) - other, "tied": tied}
    figures["largest change"] = float(np.abs(ours - theirs).max())
    return Judgement(other - tied <= ALLOWED * len(ours), figures)


def decisions(reference: Sequence[np.ndarray], candidate: Sequence[np.ndarray], *, threshold: float = 0.5) -> Judgement:
    """Scores stand on the same side of a threshold, unless they are within the margin of it in the reference."""
    ours, theirs = (np.concatenate([np.ravel(each) for each in some]) for some in (reference, candidate))
    if ours.shape != theirs.shape:
        return Judgement(False, {"scores": len(ours), "now": len(theirs)})
    turned = (ours >= threshold) != (theirs >= threshold)
    close = np.abs(ours - threshold) < MARGIN
    wrong = int((turned & ~close).sum())
    figures: dict[str, float | int | str] = {"scores": len(ours), "above": int((ours >= threshold).sum())}
    figures |= {"turned": int(turned.sum()), "of these close": int((turned & close).sum())}
    figures["largest change"] = float(np.abs(ours - theirs).max())
    return Judgement(wrong <= ALLOWED * max(1, min(figures["above"], len(ours))), figures)


Span = tuple[float, float, object]  # begin, end, label


def spans(reference: Sequence[list[Span]], candidate: Sequence[list[Span]], *, slack: float) -> Judgement:
    """Spans of time are found again, one to one, with the same label, and begin and end within the slack."""
    count = missed = extra = 0
    largest = 0.0
    for ours, theirs in zip(reference, candidate, strict=True):
        count, left = count + len(ours), list(theirs)
        for begin, end, label in ours:
            near = [
                each for each in left if each[2] == label and max(abs(each[0] - begin), abs(each[1] - end)) <= slack
            ]
            if near:
                best = min(near, key=lambda each: max(abs(each[0] - begin), abs(each[1] - end)))
                largest = max(largest, abs(best[0] - begin), abs(best[1] - end))
                left.remove(best)
            else:
                missed += 1
        extra += len(left)
    figures: dict[str, float | int | str] = {"spans": count, "missed": missed, "extra": extra, "largest shift": largest}
    return Judgement(count > 0 and max(missed, extra) <= ALLOWED * count, figures)


def points(reference: Sequence[np.ndarray], candidate: Sequence[np.ndarray], *, size: float) -> Judgement:
    """Landmarks (n, 2) of each input lie on average within half a percent of the object's size from each other."""
    shifts = [float(np.linalg.norm(a - b, axis=-1).mean()) / size for a, b in zip(reference, candidate, strict=True)]
    figures: dict[str, float | int | str] = {"inputs": len(shifts), "largest mean shift": max(shifts)}
    return Judgement(max(shifts) <= 0.005, figures)


def values(reference: Sequence[np.ndarray], candidate: Sequence[np.ndarray], *, spread: float) -> Judgement:
    """Predicted numbers differ by at most one percent of the range of values that the model was trained for."""
    ours, theirs = (np.concatenate([np.ravel(each) for each in some]) for some in (reference, candidate))
    error = float(np.abs(ours - theirs).max()) / spread
    return Judgement(error <= 0.01, {"values": len(ours), "largest error": error})
