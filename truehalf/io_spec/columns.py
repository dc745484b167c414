"""Outputs of kind "rows": detections in the columns of one tensor, as YOLO has them, taken apart to be compared.

    columns "boxes"       4
            "objectness"  1, which scores are multiplied by
            "scores"      one for each class: as many as there are names of classes, else all that are left
            "score"       1, and "label", 1: top-k or non-maximum suppression inside the model
            "others"      all that are left, such as coefficients of masks

    boxes, scores                 YOLOv8, 11, 12: [N, 4 + classes, anchors], axis 1
    boxes, objectness, scores     YOLOv5, v7, YOLOX: [N, anchors, 5 + classes], axis 2
    boxes, score, label           YOLOv10, 26, and whatever has non-maximum suppression inside: [N, n, 6], axis 2
    boxes, score                  MMDetection: [N, n, 5], axis 2, beside an output of kind "labels"

Each becomes an output `<name>.<column>` of the kind that it is, with the rows on axis 1. A file keeps its one output;
what is compared is taken apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from truehalf.codes import coded
from truehalf.errors import StageError
from truehalf.io_spec.spec import IoSpec, OutputSpec, Place

ROWS = "rows"
ORDERS = (  # of columns; "others" may follow each
    ("boxes", "scores"),
    ("boxes", "objectness", "scores"),
    ("boxes", "score", "label"),
    ("boxes", "score"),  # beside labels
)
AXES = (1, 2)
_WIDTHS = {"boxes": 4, "objectness": 1, "score": 1, "label": 1}
_KINDS = {"boxes": "boxes", "scores": "logits", "score": "scores", "label": "labels"}


def problems_of_rows(output: OutputSpec, classes: int) -> Iterator[str]:
    """What is wrong with the columns of an output of this kind.

    Args:
        classes: how many have a name.
    """
    named, given = f"output {output.name!r}, kind {ROWS!r}", output.columns
    order = tuple(each for each in given or () if each != "others")
    if order not in ORDERS or given not in (order, (*order, "others")):
        expected = " or ".join(f"[{', '.join(each)}]" for each in ORDERS)
        got = "none" if given is None else f"[{', '.join(map(str, given))}]"
        code = "missing-key" if given is None else "unknown-choice"
        yield coded(code, f"{named}: expected columns {expected}, got {got}")
    elif given != order and "scores" in order and not classes:
        yield coded("missing-key", f"{named}: expected class_names, which say where scores end and others begin")
    if output.axis not in AXES:
        code, got = ("missing-key", "none") if output.axis is None else ("unknown-choice", repr(output.axis))
        yield coded(code, f"{named}: expected 1 or 2 as the axis of its columns, got {got}")
    elif order in ORDERS and len(output.sides) == 3 and isinstance(width := output.sides[output.axis], int):
        least = sum(_WIDTHS.get(each, classes if given != order else 1) for each in order)
        is_fixed = given == order and "scores" not in order
        if width < least or (is_fixed and width > least):
            expected = f"{least} columns{'' if is_fixed else ' or more'}"
            yield coded("wrong-shape", f"{named}: expected {expected} on axis {output.axis}, got {list(output.sides)}")


def apart(spec: IoSpec) -> IoSpec:
    """A spec with an output for each column of those that hold several; what is not well declared stays as it is."""
    return replace(spec, outputs=tuple(part for each in spec.outputs for part in _parts(each, len(spec.class_names))))


def in_one(spec: IoSpec) -> bool:
    """Whether an output of a spec that was taken apart is a part of another."""
    return any(each.place is not None for each in spec.outputs)


def _parts(output: OutputSpec, classes: int) -> Iterator[OutputSpec]:
    is_other = output.kind != ROWS or (output.shape is not None and len(output.shape) != 3)
    if is_other or any(problems_of_rows(output, classes)):
        yield output
        return
    columns, axis = output.columns or (), output.axis or 0
    width = output.sides[axis] if output.sides else None
    start, factor = 0, None
    for column in columns:
        left = width - start if isinstance(width, int) else None
        count = _WIDTHS.get(column) or (classes if column == "scores" and "others" in columns else left)
        stop = None if count is None else start + count
        place = Place(output.name, axis, start, stop, factor if column == "scores" else None)
        kind = _KINDS.get(column)
        start += count or 0
        if column == "objectness":
            factor = place.start
            continue
        rows = (*output.sides[:1], output.sides[3 - axis]) if len(output.sides) == 3 else ()
        shape = (*rows, *(() if kind in ("scores", "labels") else (count or "columns",))) if rows else None
        yield OutputSpec(
            f"{output.name}.{column}",
            kind,
            output.dtype,
            shape,
            activation="identity" if kind == "logits" else None,
            format=output.format if kind == "boxes" else None,
            normalized=output.normalized if kind == "boxes" else None,
            place=place,
        )


def in_parts(outputs: Mapping[str, np.ndarray], spec: IoSpec) -> dict[str, np.ndarray]:
    """Outputs of a model, those in one tensor taken apart.

    Args:
        outputs: [N, ...] by name.
        spec: that was taken apart.

    Raises:
        StageError: where an output has not three axes.
    """
    places = {each.name: each.place for each in spec.outputs if each.place is not None}
    whole = {place.output for place in places.values()}
    found = {name: value for name, value in outputs.items() if name not in whole}
    for each in spec.outputs:
        if each.place is not None and each.place.output in outputs:
            found[each.name] = _taken(np.asarray(outputs[each.place.output]), each, each.place)
    return found


def _taken(array: np.ndarray, part: OutputSpec, place: Place) -> np.ndarray:
    if array.ndim != 3:
        raise StageError("wrong-shape", f"output {place.output!r}: expected three axes, got shape {list(array.shape)}")
    columns = np.moveaxis(array, place.axis, 2)
    taken = columns[..., place.start : place.stop]
    if place.factor is not None:
        taken = taken * columns[..., place.factor, None]
    return taken[..., 0] if part.kind in ("scores", "labels") else taken
