"""Outputs that are taken apart to be compared: detections in the columns of one tensor, as YOLO has them (kind "rows"),
and those of one image, without an axis of images.

    columns "boxes"       4
            "objectness"  1, which scores are multiplied by
            "scores"      one for each class: as many as there are names of classes, else all that are left
            "score"       1, and "label", 1: top-k or non-maximum suppression inside the model
            "image"       1, its number in the batch, which is not compared
            "others"      all that are left, such as coefficients of masks

    boxes, scores                 YOLOv8, 11, 12: [N, 4 + classes, anchors], axis 1
    boxes, objectness, scores     YOLOv5, v7, YOLOX: [N, anchors, 5 + classes], axis 2
    boxes, score, label           YOLOv10, 26, and whatever has non-maximum suppression inside: [N, n, 6], axis 2
    boxes, score                  MMDetection: [N, n, 5], axis 2, beside an output of kind "labels"
    image, boxes, score, label    EfficientDet: [N, n, 7], axis 2
    image, boxes, label, score    YOLOv7 with non-maximum suppression: [n, 7], axis 1, not batched
    label, score, boxes           PaddleDetection: [n, 6], axis 1, not batched

Each becomes an output `<name>.<column>` of the kind that it is, with the rows on axis 1. A file keeps its one output;
what is compared is taken apart.

Not batched are rows, or boxes [n, 4], scores [n] and labels [n], of one image (torchvision): a file that puts these out
runs image by image. Each gets an axis of images, and is filled up to ROWS_OF_IMAGE with rows of score 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace

import numpy as np

from truehalf.codes import coded
from truehalf.errors import StageError
from truehalf.io_spec.spec import IoSpec, OutputSpec

ROWS, COUNTS = "rows", "counts"
ORDERS = (  # of columns; "others" may follow each
    ("boxes", "scores"),
    ("boxes", "objectness", "scores"),
    ("boxes", "score", "label"),
    ("boxes", "score"),  # beside labels
    ("image", "boxes", "score", "label"),
    ("image", "boxes", "label", "score"),
    ("label", "score", "boxes"),
)
AXES = (1, 2)
ROWS_OF_IMAGE = 512  # after non-maximum suppression, which leaves 100 to 300
WIDTHS = {"boxes": 4, "objectness": 1, "score": 1, "label": 1, "image": 1}
_AXES_OF_SINGLE = 4  # of boxes [N, n, 1, 4]
_KINDS = {"boxes": "boxes", "scores": "logits", "score": "scores", "label": "labels"}
# Sides after those of images and rows, by kind.
_LAST: dict[str, tuple[int | str, ...]] = {"boxes": (4,), "scores": (), "labels": ()}


@dataclass(frozen=True)
class Columns:
    """Place of a part in an output.

    Attributes:
        output: name of the whole.
        axis: of its columns; None: it has none, and the part is all of it.
        start, stop: the first column, and the first that is not of the part; None: all that are left.
        factor: the column that the part is multiplied by; None: none.
        is_single: the axis has but one column, and the part does without.
        is_one_image: the output has no axis of images; the part gets one, and is filled up to ROWS_OF_IMAGE.
    """

    output: str
    axis: int | None
    start: int
    stop: int | None
    factor: int | None = None
    is_one_image: bool = False
    is_single: bool = False


@dataclass(frozen=True)
class Part(OutputSpec):
    """A part of an output, compared as an output."""

    part_of: Columns = field(default=Columns("", None, 0, None), repr=False)


def parts_of(spec: IoSpec) -> list[Part]:
    """Parts of outputs in a spec that was taken apart."""
    return [each for each in spec.outputs if isinstance(each, Part)]


def problems_of_rows(output: OutputSpec, classes: int) -> Iterator[str]:
    """What is wrong with the columns of an output of this kind, and with its shape where it is stated.

    Args:
        classes: how many have a name.
    """
    named, given = f"output {output.name!r}, kind {ROWS!r}", output.columns
    order = given[:-1] if given and given[-1] == "others" else given
    order = order if order in ORDERS else None
    if order is None:
        expected = " or ".join(f"[{', '.join(each)}]" for each in ORDERS)
        code, got = ("missing-key", "none") if given is None else ("unknown-choice", _told(given))
        yield coded(code, f"{named}: expected columns {expected}, or one of these and others, got {got}")
    elif given != order and "scores" in order and not classes:
        yield coded("missing-key", f"{named}: expected names of the classes, which say where others begin, got none")
    is_one_image = output.batched is False
    if order and is_one_image and (given != order or "score" not in order):
        wrong = f"expected a score and no others where it is not batched, got {_told(given)}"
        yield coded("in-conflict", f"{named}: {wrong}")
    axes = (1,) if is_one_image else AXES
    is_axis = output.axis in axes
    if not is_axis:
        code, got = ("missing-key", "none") if output.axis is None else ("unknown-choice", repr(output.axis))
        yield coded(code, f"{named}: expected {' or '.join(map(str, axes))} as the axis of its columns, got {got}")
    if output.shape is not None and len(output.shape) != (2 if is_one_image else 3):
        expected = "two axes where it is not batched" if is_one_image else "three axes"
        yield coded("wrong-shape", f"{named}: expected {expected}, got shape {list(output.shape)}")
    elif order and is_axis and output.shape and isinstance(width := output.shape[output.axis or 0], int):
        least = sum(WIDTHS.get(each, classes if given != order else 1) for each in order)
        is_fixed = given == order and "scores" not in order
        if width < least or (is_fixed and width > least):
            expected = f"{least} columns{'' if is_fixed else ' or more'}"
            yield coded("wrong-shape", f"{named}: expected {expected} on axis {output.axis}, got {list(output.shape)}")


def _told(columns: tuple[str, ...] | None) -> str:
    return f"[{', '.join(columns or ())}]"


def apart(spec: IoSpec) -> IoSpec:
    """A spec with an output for each column of those that hold several, and with an axis of images in each; what is
    not well declared stays as it is.
    """
    return replace(spec, outputs=tuple(part for each in spec.outputs for part in _parts(each, len(spec.class_names))))


def has_parts(spec: IoSpec) -> bool:
    """Whether an output of a spec that was taken apart is a part of another, or is left out."""
    return bool(parts_of(spec) or left_out(spec))


def anchored(spec: IoSpec) -> bool:
    """Whether rows of a spec that was taken apart are anchors, before top-k: each has its place, and several find one
    object.
    """
    return any(part.kind == "logits" for part in parts_of(spec))


def runs_by_image(spec: IoSpec) -> bool:
    """Whether outputs of a spec that was taken apart are those of one image."""
    return any(part.part_of.is_one_image for part in parts_of(spec))


def left_out(spec: IoSpec) -> list[str]:
    """Names of the outputs that are not compared: counts, and what has a row for each detection and no kind."""
    return [each.name for each in spec.outputs if each.kind == COUNTS or (not each.kind and each.batched is False)]


def _parts(output: OutputSpec, classes: int) -> Iterator[OutputSpec]:
    is_one_image = output.batched is False
    if output.kind == ROWS and not any(problems_of_rows(output, classes)):
        yield from _columns(output, classes)
    elif is_one_image and output.kind in _LAST:
        last = _LAST[output.kind]
        at = Columns(output.name, None, 0, None, is_one_image=True)
        name, shape = f"{output.name}.{output.kind}", (1, ROWS_OF_IMAGE, *last)
        yield _part(replace(output, name=name, shape=shape, dtype="float32", batched=None), at)
    elif output.kind == "boxes" and len(output.sides) == _AXES_OF_SINGLE:
        shape = (*output.sides[:2], output.sides[3])
        at = Columns(output.name, 2, 0, 1, is_single=True)
        yield _part(replace(output, name=f"{output.name}.boxes", shape=shape), at)
    elif output.kind == COUNTS:
        yield replace(output, kind=None, batched=False)
    else:
        yield output


def _part(output: OutputSpec, at: Columns) -> Part:
    return Part(**{each.name: getattr(output, each.name) for each in fields(output)}, part_of=at)


def _columns(output: OutputSpec, classes: int) -> Iterator[OutputSpec]:
    columns, axis, sides = output.columns or (), output.axis or 0, output.sides
    is_one_image = output.batched is False
    width = sides[axis] if sides else None
    images_and_rows = (1, ROWS_OF_IMAGE) if is_one_image else (sides[0], sides[3 - axis]) if sides else None
    start, factor = 0, None
    for column in columns:
        left = width - start if isinstance(width, int) else None
        count = WIDTHS.get(column) or (classes if column == "scores" and "others" in columns else left)
        stop, kind = None if count is None else start + count, _KINDS.get(column)
        if column == "objectness":
            factor = start
        elif column != "image":
            last = _LAST.get(kind or "", (count or "columns",))
            yield Part(
                f"{output.name}.{column}",
                kind,
                "float32" if is_one_image else output.dtype,
                images_and_rows and (*images_and_rows, *last),
                activation="identity" if kind == "logits" else None,
                format=output.format if kind == "boxes" else None,
                normalized=output.normalized if kind == "boxes" else None,
                part_of=Columns(
                    output.name, axis, start, stop, factor if column == "scores" else None, is_one_image=is_one_image
                ),
            )
        start += count or 0


def in_parts(outputs: Mapping[str, np.ndarray], spec: IoSpec) -> dict[str, np.ndarray]:
    """Outputs of a model, those in one tensor taken apart.

    Args:
        outputs: [N, ...] by name; those that are not batched of one image.
        spec: that was taken apart.

    Raises:
        StageError: where an output has other axes than its parts need.
    """
    parts = [part for part in parts_of(spec) if part.part_of.output in outputs]
    whole = {*left_out(spec), *(part.part_of.output for part in parts)}
    others = {name: value for name, value in outputs.items() if name not in whole}
    return others | {part.name: _taken(outputs[part.part_of.output], part) for part in parts}


def _taken(array: np.ndarray, part: Part) -> np.ndarray:
    at = part.part_of
    is_vector = part.kind in ("scores", "labels") or at.is_single
    axes = 3 + at.is_single - at.is_one_image - (at.axis is None and is_vector)
    if array.ndim != axes:
        raise StageError("wrong-shape", f"output {at.output!r}: expected {axes} axes, got shape {list(array.shape)}")
    columns = array if at.axis is None else np.moveaxis(array, at.axis, -1)
    taken = columns if at.axis is None else columns[..., at.start : at.stop]
    if at.factor is not None:
        taken = taken * columns[..., at.factor, None]
    if at.axis is not None and is_vector:
        taken = taken[..., 0]
    return _filled(taken) if at.is_one_image else taken


def _filled(rows: np.ndarray) -> np.ndarray:
    """[n, ...] as float32 [1, ROWS_OF_IMAGE, ...]."""
    filled = np.zeros((1, ROWS_OF_IMAGE, *rows.shape[1:]), np.float32)
    filled[0, : len(rows)] = rows[:ROWS_OF_IMAGE]
    return filled
