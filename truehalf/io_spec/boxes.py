"""How boxes are read: whether a reference's boxes are what its I/O spec declares, and in which formats they may be.

Read in a format, a box above the score threshold is odd where it

    has no area                 x2 <= x1 or y2 <= y1
    is outside                  wholly, or is larger than twice the image; of normalised boxes only, for pixels may
                                be those of another image than the model's input
    is in the corner            within the first two pixels: 0..1, taken for pixels

and sticks out where it leaves the image by MARGIN of its side. Nothing that follows from the boxes says anything about
the candidate where more than SHARE of them are odd; or more than FEW are odd, or more than SHARE stick out (xyxy, taken
for cxcywh), and they lie in the image in another format.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from truehalf.codes import coded
from truehalf.io_spec.decode import decode, image_size
from truehalf.io_spec.outputs import Outputs, columns_of
from truehalf.io_spec.spec import IoSpec

SHARE = 0.25
FEW = 0.05
FEWEST = 3  # boxes of which a layout is read
MARGIN = 0.05  # of the image's side
NORMALIZED_SIDE = 2.0  # of the image: normalised boxes are hardly larger
_CORNER = 2.0  # pixels
_SMALLEST = 16  # side of an image whose corner means something
_LARGEST = 2.0  # sides of the image that a box may be long
_FORMATS = ("cxcywh", "xyxy", "xywh")  # yxyx lies where xyxy does
Layout = tuple[str, bool]  # format, and whether in 0..1
Runs = Sequence[tuple[Outputs, tuple[int, int] | None]]


def box_format_problem(runs: Runs, spec: IoSpec, score_threshold: float) -> str | None:
    """Why the boxes are not what the I/O spec declares; None where they may well be, or there is none to look at.

    Args:
        runs: outputs of the reference by name, and the height and width of the image in pixels where they are known.
        spec: I/O spec of task "detections".
        score_threshold: 0 to 1; boxes that score less are not looked at.
    """
    declared = columns_of(spec)["boxes"]
    layout = (declared.format or "cxcywh", declared.normalized is not False)
    boxes, odd, sticking_out = _counted(layout, runs, spec, score_threshold)
    if odd <= FEW * boxes and sticking_out <= SHARE * boxes:
        return None
    layouts = layouts_of(runs, spec, score_threshold)
    if odd <= SHARE * boxes and not layouts:
        return None
    how = f"{odd} are no boxes in the image" if odd > FEW * boxes else f"{sticking_out} stick out of the image"
    problem = (
        f"output {declared.name!r}: {how} of {boxes} boxes of the reference above the score threshold, read as the I/O "
        f"spec declares ({_named(layout)}); {in_words(layouts)}"
    )
    return coded("boxes-misread", problem)


def layouts_of(runs: Runs, spec: IoSpec, score_threshold: float) -> list[Layout]:
    """Format and normalized of every reading in which next to all boxes lie in the image; none where fewer than FEWEST
    boxes score enough.

    Args:
        runs, spec, score_threshold: as above; what the spec declares of the boxes does not count.
    """
    good = []
    for layout in product(_FORMATS, (True, False)):
        boxes, odd, sticking_out = _counted(layout, runs, spec, score_threshold)
        if boxes >= FEWEST and odd + sticking_out <= FEW * boxes:
            good.append(layout)
    return good


def in_words(layouts: Sequence[Layout]) -> str:
    """Name the layouts that `layouts_of` found."""
    if layouts:
        return f"boxes above the score threshold lie inside the image as {', and as '.join(map(_named, layouts))}"
    return "too few boxes are above the score threshold and inside the image to tell their format"


def _named(layout: Layout) -> str:
    """A layout as keys of the I/O spec."""
    return f"format: {layout[0]}, normalized: {str(layout[1]).lower()}"


def _counted(layout: Layout, runs: Runs, spec: IoSpec, score_threshold: float) -> tuple[int, int, int]:
    """Count the boxes above the score threshold, read in a layout: all, odd ones, those that stick out."""
    boxes = columns_of(spec)["boxes"]
    read = replace(boxes, format=layout[0], normalized=layout[1])
    spec = replace(spec, outputs=tuple(read if each is boxes else each for each in spec.outputs))
    count = odd = sticking_out = 0
    for outputs, given in runs:
        size = image_size(spec, given)
        if size is None and read.normalized:
            continue
        for found in decode(outputs, spec, size):
            above = found.boxes_px[found.scores >= score_threshold].astype(np.float64)
            above = above[above.any(axis=1)]  # those that are not finite are all 0, and are reported as not finite
            low, high = above[:, :2], above[:, 2:]
            is_odd = (high <= low).any(axis=1)
            if size is not None:
                side = np.array(size[::-1], np.float64)
                is_outside = ((high <= 0) | (low >= side) | (high - low > _LARGEST * side)).any(axis=1)
                is_odd |= is_outside & bool(read.normalized)
                is_odd |= (np.abs(above) <= _CORNER).all(axis=1) & (min(size) >= _SMALLEST)
                beyond = (low < -MARGIN * side) | (high > (1 + MARGIN) * side)
                sticking_out += int(beyond.any(axis=1).sum())
            count += len(above)
            odd += int(is_odd.sum())
    return count, odd, sticking_out
