"""Does an I/O spec describe the boxes that it declares? Checked on the reference only, before a candidate is blamed.

Read as the spec declares, a box above the score threshold is odd where it

    has no area                 x2 <= x1 or y2 <= y1
    is outside                  wholly, or is larger than twice the image; of normalised boxes only, for pixels may
                                be those of another image than the model's input
    is in the corner            within the first two pixels: 0..1, taken for pixels

Where more than SHARE of them are odd, nothing that follows from them says anything about the candidate. xyxy taken for
cxcywh makes no odd boxes, but boxes that stick out of the image by MARGIN of its side: so, too, where more than SHARE
do and next to none of them as xyxy.

Less counts where more than FEW of the boxes are odd or stick out, or ONE_SIDE of them (ENOUGH or more) lie to one side
of the middle in both axes, and none of this holds in another format. Where none is odd, it is a doubt that the report
states, and the gates stand. Large cxcywh taken for xyxy lie below and to the right; xywh sticks out as cxcywh to the
left. Small ones do so by less than MARGIN: so, too, where EDGES boxes or more reach beyond
the left and the upper edge, next to none beyond the others, and in another format next to none beyond any.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from truehalf.codes import coded
from truehalf.io_spec.decode import decode
from truehalf.io_spec.outputs import Outputs, by_kind, picture_size
from truehalf.io_spec.spec import IoSpec

SHARE = 0.25
FEW = 0.05
FEWEST = 3  # boxes of which a layout is read
ENOUGH, ONE_SIDE = 8, 0.9  # boxes; eight are on one side in both axes by chance in one case of 4^7
MARGIN = 0.05  # of the image's side
EDGES, BEYOND, OF_BOX = 4, 0.002, 0.1  # boxes; of the image's side: four FP16 steps; of the box's: detectors clip none
_CORNER = 2.0  # pixels
_SMALLEST = 16  # side of an image whose corner means something
_LARGEST = 2.0  # sides of the image that a box may be long
_XYWH = "xywh"
_FORMATS, _NORMALIZED = ("cxcywh", "xyxy", _XYWH), (True, False)  # yxyx lies where xyxy does
Runs = Sequence[tuple[Outputs, tuple[int, int] | None]]


def box_format_problem(runs: Runs, spec: IoSpec, score_threshold: float) -> tuple[str, bool] | None:
    """Why the boxes are not what the I/O spec declares, and whether that is sure, no doubt alone; None where they may
    well be, or there is none to look at.

    Args:
        runs: outputs of the reference by name, and the height and width of the image in pixels where they are known.
        spec: I/O spec of task "detections".
        score_threshold: 0 to 1; boxes that score less are not looked at.
    """
    declared = by_kind(spec)["boxes"]
    layout = (declared.format or "cxcywh", declared.normalized is not False)

    def best_of(layouts: Iterable[tuple[str, bool]]) -> _Reading:
        others = (_Reading(runs, spec, score_threshold, *each) for each in layouts if each != layout)
        return min(others, key=_Reading.badness)

    read = _Reading(runs, spec, score_threshold, *layout)
    if not read.boxes:
        return None
    sure = read.odd > SHARE * read.boxes
    if sure:
        best = best_of(product(_FORMATS[:2], _NORMALIZED))
        better = best if best.odd <= SHARE * best.boxes else None
    elif read.odd + read.sticking_out > max(1, FEW * read.boxes) or read.is_lopsided:
        better = best_of((each, layout[1]) for each in _FORMATS)
        sure = read.odd > 0 or (layout[0] == "cxcywh" and read.sticking_out > SHARE * read.boxes)
        if better.odd or better.is_lopsided or better.sticking_out > (FEW * read.sticking_out if sure else 0):
            return None
    elif read.leans_out:
        better = best_of((each, layout[1]) for each in _FORMATS)
        if better.odd or better.is_lopsided or better.edges.sum() > FEW * read.edges.sum():
            return None
    else:
        return None
    instead = f"they are boxes in the image as {_changes(better, layout)}: declare that" if better else _NONE
    problem = (
        f"output {declared.name!r}: {read.summary()} of {read.boxes} boxes of the reference above the score "
        f"threshold, read as the I/O spec declares ({_declaration(*layout)}); {instead}"
    )
    return coded("boxes-misread" if sure else "boxes-unlikely", problem), sure


def layouts_of(runs: Runs, spec: IoSpec, score_threshold: float) -> list[tuple[str, bool]]:
    """Format and normalized of every reading in which they lie in the image, "xywh" is x, y, width, height; only those
    with boxes on both sides of the middle, and beyond no two edges alone, where there are such. None where fewer than
    FEWEST boxes score enough.

    Args:
        runs, spec, score_threshold: as above; what the spec declares of the boxes does not count.
    """
    layouts = list(product(_FORMATS, _NORMALIZED))
    readings = [_Reading(runs, spec, score_threshold, *layout) for layout in layouts]
    good = [(each, read) for each, read in zip(layouts, readings, strict=True) if read.is_good]
    balanced = [each for each, read in good if not (read.is_lopsided or read.leans_out)]
    return balanced or [each for each, _ in good]


def in_words(layouts: Sequence[tuple[str, bool]]) -> str:
    """What `layouts_of` found."""
    named = " and ".join(
        f"{'x, y, width, height' if each == _XYWH else each} in {'0..1' if normalized else 'pixels'}"
        for each, normalized in layouts
    )
    if named:
        return f"boxes above the score threshold lie inside the image when they are read as {named}"
    return "too few boxes are above the score threshold and inside the image to tell their format"


_NONE = "no other format or normalized makes boxes in the image of them; is it the output of that kind?"


class _Reading:
    """The boxes above the score threshold, read in one way, and counted.

    Attributes:
        boxes: how many there are.
        odd, sticking_out: how many of them are (see the top of this module).
        edges: int64 [2, 2], how many reach beyond the left and upper edge, and beyond the others, in x and y.
    """

    def __init__(self, runs: Runs, spec: IoSpec, score_threshold: float, box_format: str, normalized: bool) -> None:
        self.box_format, self.normalized = box_format, normalized
        self.edges = np.zeros((2, 2), np.int64)
        self._sides = np.zeros((2, 2), np.int64)  # boxes before the middle and beyond it, in x and y
        read = replace(by_kind(spec)["boxes"], format=box_format, normalized=normalized)
        outputs = tuple(read if output.kind == "boxes" else output for output in spec.outputs)
        self.boxes = self.sticking_out = 0
        self._counts = dict.fromkeys(("no area", "outside", "in the corner"), 0)
        for values, given in runs:
            size = picture_size(spec, given)
            if size is None and normalized:
                continue
            for found in decode(values, replace(spec, outputs=outputs), size):
                self._count(found.boxes[found.scores >= score_threshold].astype(np.float64), size)

    @property
    def odd(self) -> int:
        return sum(self._counts.values())

    @property
    def is_lopsided(self) -> bool:
        """Whether next to all of them lie to one side of the image's middle, in both axes."""
        return self.boxes >= ENOUGH and bool((self._sides.max(axis=0) >= ONE_SIDE * self.boxes).all())

    @property
    def leans_out(self) -> bool:
        """Whether some reach beyond the left and the upper edge, and next to none beyond the others; or the other way
        round.
        """
        less, more = sorted(self.edges, key=np.sum)
        return bool(more.all() and more.sum() >= EDGES and less.sum() <= (1 - ONE_SIDE) * more.sum())

    @property
    def is_good(self) -> bool:
        """Whether there are enough, and next to all lie in the image."""
        return self.odd + self.sticking_out <= FEW * self.boxes and self.boxes >= FEWEST

    def badness(self) -> tuple[int, int, bool, int]:
        return self.odd, self.sticking_out, self.is_lopsided, int(self.edges.sum())

    def summary(self) -> str:
        """What is odd about them, with numbers."""
        named = ", ".join(f"{what} {count}" for what, count in self._counts.items() if count)
        parts = [f"{self.odd} are no boxes in the image ({named})"] if self.odd else []
        parts += [f"{self.sticking_out} stick out of the image"] if self.sticking_out else []
        parts += [f"{ONE_SIDE:.0%} or more lie to one side"] if self.is_lopsided else []
        parts += [f"{self.edges.sum()} reach beyond two edges alone"] if self.leans_out and not parts else []
        return " and ".join(parts)

    def _count(self, boxes: np.ndarray, size: tuple[int, int] | None) -> None:
        boxes = boxes[boxes.any(axis=1)]  # those that are not finite are all 0, and are reported as not finite
        self.boxes += len(boxes)
        low, high = boxes[:, :2], boxes[:, 2:]
        empty = (high <= low).any(axis=1)
        self._counts["no area"] += int(empty.sum())
        if size is None:
            return
        side = np.array(size[::-1], np.float64)
        outside = ((high <= 0) | (low >= side) | (high - low > _LARGEST * side)).any(axis=1) & ~empty & self.normalized
        corner = (np.abs(low) <= _CORNER).all(axis=1) & (np.abs(high) <= _CORNER).all(axis=1) & ~empty & ~outside
        self._counts["outside"] += int(outside.sum())
        self._counts["in the corner"] += int(corner.sum()) if min(size) >= _SMALLEST else 0
        beyond = (low < -MARGIN * side) | (high > (1 + MARGIN) * side)
        self.sticking_out += int(beyond.any(axis=1).sum())
        by = np.maximum(BEYOND * side, OF_BOX * (high - low))
        self.edges += [(low < -by).sum(axis=0), (high > side + by).sum(axis=0)]
        self._sides += [(low + high < side).sum(axis=0), (low + high > side).sum(axis=0)]


def _declaration(box_format: str, normalized: bool) -> str:
    return f"format: {box_format}, normalized: {str(normalized).lower()}"


def _changes(reading: _Reading, layout: tuple[str, bool]) -> str:
    """The keys whose values differ from those declared."""
    changes = [f"format: {reading.box_format}"] if reading.box_format != layout[0] else []
    changes += [f"normalized: {str(reading.normalized).lower()}"] if reading.normalized != layout[1] else []
    return ", ".join(changes)
