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
from truehalf.io_spec.spec import Columns, IoSpec, OutputSpec

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
    """What is wrong with the columns of an output of this kind, and with its shape where it is stated.

    Args:
        classes: how many have a name.
    """
    named, given = f"output {output.name!r}, kind {ROWS!r}", output.columns
    order = _order_of(given)
    if order is None:
        expected = " or ".join(f"[{', '.join(each)}]" for each in ORDERS)
        code, got = ("missing-key", "none") if given is None else ("unknown-choice", _told(given))
        yield coded(code, f"{named}: expected columns {expected}, or one of these and others, got {got}")
    elif given != order and "scores" in order and not classes:
        yield coded("missing-key", f"{named}: expected names of the classes, which say where others begin, got none")
    is_axis = type(output.axis) is int and output.axis in AXES
    if not is_axis:
        code, got = ("missing-key", "none") if output.axis is None else ("unknown-choice", repr(output.axis))
        yield coded(code, f"{named}: expected 1 or 2 as the axis of its columns, got {got}")
    if output.shape is not None and len(output.shape) != 3:
        yield coded("wrong-shape", f"{named}: expected three axes, got shape {list(output.shape)}")
    elif order and is_axis and output.shape and isinstance(width := output.shape[output.axis or 0], int):
        least = sum(_WIDTHS.get(each, classes if given != order else 1) for each in order)
        is_fixed = given == order and "scores" not in order
        if width < least or (is_fixed and width > least):
            expected = f"{least} columns{'' if is_fixed else ' or more'}"
            yield coded("wrong-shape", f"{named}: expected {expected} on axis {output.axis}, got {list(output.shape)}")


def _order_of(columns: object) -> tuple[str, ...] | None:
    """The columns without others; None where they are none of the orders."""
    order = columns[:-1] if isinstance(columns, tuple) and columns[-1:] == ("others",) else columns
    return next((each for each in ORDERS if each == order), None)


def _told(columns: object) -> str:
    return f"[{', '.join(map(str, columns))}]" if isinstance(columns, tuple) else repr(columns)


def apart(spec: IoSpec) -> IoSpec:
    """A spec with an output for each column of those that hold several; what is not well declared stays as it is."""
    return replace(spec, outputs=tuple(part for each in spec.outputs for part in _parts(each, len(spec.class_names))))


def has_parts(spec: IoSpec) -> bool:
    """Whether an output of a spec that was taken apart is a part of another."""
    return any(each.part_of is not None for each in spec.outputs)


def anchored(spec: IoSpec) -> bool:
    """Whether rows of a spec that was taken apart are anchors, before top-k: each has its place, and several find one
    object.
    """
    return any(each.kind == "logits" and each.part_of is not None for each in spec.outputs)


def _parts(output: OutputSpec, classes: int) -> Iterator[OutputSpec]:
    if output.kind != ROWS or any(problems_of_rows(output, classes)):
        yield output
        return
    columns, axis, sides = output.columns or (), output.axis or 0, output.sides
    width = sides[axis] if sides else None
    start, factor = 0, None
    for column in columns:
        left = width - start if isinstance(width, int) else None
        count = _WIDTHS.get(column) or (classes if column == "scores" and "others" in columns else left)
        stop, kind = None if count is None else start + count, _KINDS.get(column)
        if column == "objectness":
            factor = start
        else:
            rank = () if kind in ("scores", "labels") else (count or "columns",)
            yield OutputSpec(
                f"{output.name}.{column}",
                kind,
                output.dtype,
                (sides[0], sides[3 - axis], *rank) if sides else None,
                activation="identity" if kind == "logits" else None,
                format=output.format if kind == "boxes" else None,
                normalized=output.normalized if kind == "boxes" else None,
                part_of=Columns(output.name, axis, start, stop, factor if column == "scores" else None),
            )
        start += count or 0


def in_parts(outputs: Mapping[str, np.ndarray], spec: IoSpec) -> dict[str, np.ndarray]:
    """Outputs of a model, those in one tensor taken apart.

    Args:
        outputs: [N, ...] by name.
        spec: that was taken apart.

    Raises:
        StageError: where an output has not three axes.
    """
    parts = [(each, each.part_of) for each in spec.outputs if each.part_of is not None]
    whole = {columns.output for _, columns in parts}
    found = {name: value for name, value in outputs.items() if name not in whole}
    taken = {part.name: _taken(outputs[at.output], part, at) for part, at in parts if at.output in outputs}
    return found | taken


def _taken(array: np.ndarray, part: OutputSpec, at: Columns) -> np.ndarray:
    if array.ndim != 3:
        raise StageError("wrong-shape", f"output {at.output!r}: expected three axes, got shape {list(array.shape)}")
    columns = np.moveaxis(array, at.axis, 2)
    taken = columns[..., at.start : at.stop]
    if at.factor is not None:
        taken = taken * columns[..., at.factor, None]
    return taken[..., 0] if part.kind in ("scores", "labels") else taken
