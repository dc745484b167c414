"""How boxes are read: whether a reference's boxes are what its I/O spec declares, and in which formats they may be.

Read in a format, a box above the score threshold is odd where it

    has no area                 x2 <= x1 or y2 <= y1
    is outside                  wholly, or is larger than twice the image; of normalised boxes only, for pixels may
                                be those of another image than the model's input
    is in the corner            within the first two pixels: 0..1, taken for pixels

Where more than SHARE of them are odd, nothing that follows from them says anything about the candidate. xyxy taken for
cxcywh makes no odd boxes, but boxes that stick out of the image by MARGIN of its side: so, too, where more than SHARE
do and next to none of them as xyxy.

Less counts where more than FEW of the boxes are odd or stick out, or ONE_SIDE of them (ENOUGH or more) lie to one side
of the middle in both axes, and none of this holds in another format: small boxes of cxcywh taken for xyxy, or of x, y,
width, height. Where none is odd, it is a doubt that the report states, and the gates stand.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from truehalf.codes import coded
from truehalf.io_spec.decode import decode, image_size
from truehalf.io_spec.outputs import Outputs, columns_of
from truehalf.io_spec.spec import IoSpec

SHARE = 0.25
FEW = 0.05
FEWEST = 3  # boxes of which a layout is read
ENOUGH, ONE_SIDE = 8, 0.9  # boxes; eight are on one side in both axes by chance in one case of 4^7
MARGIN = 0.05  # of the image's side
NORMALIZED_SIDE = 2.0  # of the image: normalised boxes are hardly larger
_CORNER = 2.0  # pixels
_SMALLEST = 16  # side of an image whose corner means something
_LARGEST = 2.0  # sides of the image that a box may be long
_FORMATS = ("cxcywh", "xyxy", "xywh")  # yxyx lies where xyxy does
Layout = tuple[str, bool]  # format, and whether in 0..1
Runs = Sequence[tuple[Outputs, tuple[int, int] | None]]


def box_layout(array: np.ndarray) -> tuple[str, bool, str]:
    """Guess format and normalized of boxes [..., 4] from their values alone; and what was seen."""
    values = array.reshape(-1, 4).astype(np.float64)
    in_order = float((values[:, 2:] >= values[:, :2]).all(axis=1).mean())
    largest = float(np.abs(values).max(initial=0.0))
    seen = (
        f"columns 2 and 3 are at least columns 0 and 1 in {in_order:.1%} of the rows (all of them: two corners; else "
        f"center, width, height); values up to {largest:.3g}"
    )
    return "xyxy" if in_order == 1.0 else "cxcywh", largest <= NORMALIZED_SIDE, seen


def box_format_problem(runs: Runs, spec: IoSpec, score_threshold: float) -> tuple[str, bool] | None:
    """Why the boxes are not what the I/O spec declares, and whether that is sure, no doubt alone; None where they may
    well be, or there is none to look at.

    Args:
        runs: outputs of the reference by name, and the height and width of the image in pixels where they are known.
        spec: I/O spec of task "detections".
        score_threshold: 0 to 1; boxes that score less are not looked at.
    """
    declared = columns_of(spec)["boxes"]
    layout = (declared.format or "cxcywh", declared.normalized is not False)
    read = _read_as(layout, runs, spec, score_threshold)
    is_odd = read.odd > SHARE * read.boxes
    if not read.boxes or not (is_odd or read.odd + read.sticking_out > max(1, FEW * read.boxes) or read.is_lopsided):
        return None
    others: Iterable[Layout] = product(_FORMATS[:2], (True, False)) if is_odd else product(_FORMATS, [layout[1]])
    readings = {each: _read_as(each, runs, spec, score_threshold) for each in others if each != layout}
    best = min(readings, key=lambda each: readings[each].badness)
    better = readings[best]
    is_sure = is_odd or read.odd > 0 or (layout[0] == "cxcywh" and read.sticking_out > SHARE * read.boxes)
    if is_odd:
        explains = better.odd <= SHARE * better.boxes
    elif better.odd or better.is_lopsided or better.sticking_out > (FEW * read.sticking_out if is_sure else 0):
        return None
    else:
        explains = True
    instead = f"they are boxes in the image as {_changes(best, layout)}: declare that" if explains else _NONE
    problem = (
        f"output {declared.name!r}: {read.summary} of {read.boxes} boxes of the reference above the score threshold, "
        f"read as the I/O spec declares ({_changes(layout)}); {instead}"
    )
    return coded("boxes-misread" if is_sure else "boxes-unlikely", problem), is_sure


_NONE = "no other format or normalized makes boxes in the image of them; is it the output of that kind?"


def layouts_of(runs: Runs, spec: IoSpec, score_threshold: float) -> list[Layout]:
    """Format and normalized of every reading in which boxes lie in the image, "xywh" is x, y, width, height; only those
    with boxes on both sides of the middle, where there are such. None where fewer than FEWEST boxes score enough.

    Args:
        runs, spec, score_threshold: as above; what the spec declares of the boxes does not count.
    """
    readings = {each: _read_as(each, runs, spec, score_threshold) for each in product(_FORMATS, (True, False))}
    good = [each for each, read in readings.items() if read.is_good]
    return [each for each in good if not readings[each].is_lopsided] or good


def in_words(layouts: Sequence[Layout]) -> str:
    """Name the layouts that `layouts_of` found."""
    named = " and ".join(
        f"{'x, y, width, height' if each == 'xywh' else each} in {'0..1' if normalized else 'pixels'}"
        for each, normalized in layouts
    )
    if named:
        return f"boxes above the score threshold lie inside the image when they are read as {named}"
    return "too few boxes are above the score threshold and inside the image to tell their format"


@dataclass(frozen=True)
class _Reading:
    """Boxes above the score threshold, read in one layout, and counted.

    Attributes:
        boxes: how many there are.
        empty, outside, in_corner, sticking_out: how many of them are (see the top of this module).
        sides: boxes before the middle and beyond it, in x and y, [2, 2].
    """

    boxes: int
    empty: int
    outside: int
    in_corner: int
    sticking_out: int
    sides: np.ndarray

    @property
    def odd(self) -> int:
        return self.empty + self.outside + self.in_corner

    @property
    def is_lopsided(self) -> bool:
        """Whether next to all of them lie to one side of the image's middle, in both axes."""
        return self.boxes >= ENOUGH and bool((self.sides.max(axis=0) >= ONE_SIDE * self.boxes).all())

    @property
    def is_good(self) -> bool:
        """Whether there are enough, and next to all lie in the image."""
        return self.odd + self.sticking_out <= FEW * self.boxes and self.boxes >= FEWEST

    @property
    def badness(self) -> tuple[int, int, bool]:
        return self.odd, self.sticking_out, self.is_lopsided

    @property
    def summary(self) -> str:
        """What is odd about them, with numbers."""
        counts = {"no area": self.empty, "outside": self.outside, "in the corner": self.in_corner}
        named = ", ".join(f"{what} {count}" for what, count in counts.items() if count)
        parts = [f"{self.odd} are no boxes in the image ({named})"] if self.odd else []
        parts += [f"{self.sticking_out} stick out of the image"] if self.sticking_out else []
        parts += [f"{ONE_SIDE:.0%} or more lie to one side"] if self.is_lopsided else []
        return " and ".join(parts)


def _read_as(layout: Layout, runs: Runs, spec: IoSpec, score_threshold: float) -> _Reading:
    boxes = columns_of(spec)["boxes"]
    read = replace(boxes, format=layout[0], normalized=layout[1])
    spec = replace(spec, outputs=tuple(read if each is boxes else each for each in spec.outputs))
    counts, sides = np.zeros(5, np.int64), np.zeros((2, 2), np.int64)
    for outputs, given in runs:
        size = image_size(spec, given)
        if size is None and read.normalized:
            continue
        for found in decode(outputs, spec, size):
            above = found.boxes_px[found.scores >= score_threshold].astype(np.float64)
            above = above[above.any(axis=1)]  # those that are not finite are all 0, and are reported as not finite
            low, high = above[:, :2], above[:, 2:]
            empty = (high <= low).any(axis=1)
            counts[:2] += len(above), empty.sum()
            if size is None:
                continue
            side = np.array(size[::-1], np.float64)
            is_outside = ((high <= 0) | (low >= side) | (high - low > _LARGEST * side)).any(axis=1)
            outside = is_outside & ~empty & bool(read.normalized)
            corner = (np.abs(above) <= _CORNER).all(axis=1) & ~empty & ~outside & (min(size) >= _SMALLEST)
            beyond = ((low < -MARGIN * side) | (high > (1 + MARGIN) * side)).any(axis=1)
            counts[2:] += outside.sum(), corner.sum(), beyond.sum()
            sides += [(low + high < side).sum(axis=0), (low + high > side).sum(axis=0)]
    count, empty_count, outside_count, corner_count, beyond_count = counts.tolist()
    return _Reading(count, empty_count, outside_count, corner_count, beyond_count, sides)


def _changes(layout: Layout, declared: Layout | None = None) -> str:
    """A layout as keys of the I/O spec; those whose values differ from the declared ones."""
    values = {"format": layout[0], "normalized": str(layout[1]).lower()}
    before = declared and {"format": declared[0], "normalized": str(declared[1]).lower()}
    return ", ".join(f"{key}: {value}" for key, value in values.items() if not before or before[key] != value)
