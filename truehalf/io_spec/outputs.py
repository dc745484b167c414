"""Kinds of a model's outputs, as its I/O spec declares them; nothing is guessed from names or values.

kind "logits"   [N, queries, classes]  activation: sigmoid | softmax | identity (they are scores); no_object: the
                                       last class is none (true), or the first is (first)
kind "boxes"    [N, queries, 4] or     format: cxcywh | xyxy | xywh (x and y of the corner) | yxyx;
                [N, queries, 1, 4]     normalized: true | false (then pixels of the input)
kind "scores"   [N, n] in 0..1, and kind "labels" [N, n]: top-k inside the model, with "boxes" [N, n, 4]
kind "rows"     [N, n, columns] or [N, columns, n]: boxes and scores in the columns of one tensor, on `axis`
kind "classes"  [N, classes]           classification logits; "probabilities" if they add up to 1 in each image
kind "map"      [N, channels, height, width], "sequence" [N, steps, values], "embedding" [N, values]: compared as any
                tensor; "tensor": as no kind
kind "counts"   of detections in each image, in any shape; not compared, as what is lost shows in the others
no kind         any tensor

columns of "rows"   "boxes"       4
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

batched: false  boxes [n, 4], scores [n], labels [n] and rows [n, columns] of one image: the model runs image by image

detections      logits + boxes, or scores + labels + boxes, or rows
classification  classes
tensors         none of these
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from truehalf.codes import coded
from truehalf.errors import StageError
from truehalf.io_spec.spec import FIRST, IoSpec, OutputSpec

DETECTIONS, CLASSIFICATION, TENSORS = "detections", "classification", "tensors"
ROWS, COUNTS, TENSOR = "rows", "counts", "tensor"
DECLARE = (  # a remedy
    "let `truehalf inspect MODEL --samples SOURCE --spec FILE` write an I/O spec, correct it, and give it as --spec "
    "FILE (in Python, spec=...; of the pipeline, model.outputs, which `python -m pipeline.init` proposes)"
)
MOST_QUERIES = 1200  # of a decoder; more rows are anchors, of which several find one object
Outputs = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Kind:
    """A kind of output.

    Attributes:
        axes: of a batched output, as messages name them; empty: any.
        columns: of detections in it; of "rows" its spec declares them.
        needs: keys that it has to declare.
    """

    axes: str = ""
    columns: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()


CHOICES: dict[str, tuple[Any, ...]] = {
    "activation": ("sigmoid", "softmax", "identity"),
    "format": ("cxcywh", "xyxy", "xywh", "yxyx"),
    "normalized": (True, False),
    "no_object": (True, False, FIRST),
    "axis": (1, 2),
}
KINDS = {
    "logits": Kind("[N, queries, classes]", ("scores",), ("activation",)),
    "boxes": Kind("[N, boxes, 4]", ("boxes",), ("format", "normalized")),
    "scores": Kind("[N, n]", ("score",)),
    "labels": Kind("[N, n]", ("label",)),
    "classes": Kind("[N, classes]"),
    "probabilities": Kind("[N, classes]"),
    "map": Kind("[N, channels, height, width]"),
    "sequence": Kind("[N, steps, values]"),
    "embedding": Kind("[N, values]"),
    ROWS: Kind("[N, n, columns]", (), ("format", "normalized", "axis")),
    COUNTS: Kind(),
    TENSOR: Kind(),
}
OF_CLASSES = ("classes", "probabilities")
ORDERS = (  # of columns in one tensor; "others" may follow each
    ("boxes", "scores"),
    ("boxes", "objectness", "scores"),
    ("boxes", "score", "label"),
    ("boxes", "score"),  # beside labels
    ("image", "boxes", "score", "label"),
    ("image", "boxes", "label", "score"),
    ("label", "score", "boxes"),
)
_AXES_OF_SINGLE = 4  # of boxes [N, n, 1, 4], as YOLOv4 has them
WIDTHS = {"boxes": 4, "objectness": 1, "score": 1, "label": 1, "image": 1}
LAYOUTS = ({"boxes", "scores"}, {"boxes", "score", "label"})  # columns that make up detections


def columns_in(output: OutputSpec) -> tuple[str, ...]:
    """List an output's columns of detections, in their order; empty for other outputs."""
    return (output.columns or ()) if output.kind == ROWS else KINDS.get(output.kind or "", Kind()).columns


def columns_of(spec: IoSpec) -> dict[str, OutputSpec]:
    """Map each column of detections to its output; empty unless together they make up detections."""
    found = {column: output for output in spec.outputs for column in columns_in(output)}
    return found if any(layout <= found.keys() for layout in LAYOUTS) else {}


def task_of(spec: IoSpec) -> str:
    """ "detections", "classification" or "tensors"."""
    if columns_of(spec):
        return DETECTIONS
    return CLASSIFICATION if any(output.kind in OF_CLASSES for output in spec.outputs) else TENSORS


def detecting(spec: IoSpec) -> list[str]:
    """Names of the outputs that make up detections; none where the task is another."""
    return list(dict.fromkeys(output.name for output in columns_of(spec).values()))


def finds_top_k(spec: IoSpec) -> bool:
    """True if the model itself chooses its detections, each with a score and a label."""
    return "score" in columns_of(spec)


def is_of_one_image(spec: IoSpec) -> bool:
    """True if detections have no axis of images, so that the model runs image by image."""
    return any(output.batched is False for output in columns_of(spec).values())


def finds_anchors(spec: IoSpec, outputs: Outputs) -> bool:
    """True for YOLO-style outputs: one row per anchor, before non-maximum suppression, so that several find one object;
    also for more than MOST_QUERIES rows of logits.
    """
    output = columns_of(spec).get("scores")
    return output is not None and (output.kind == ROWS or outputs[output.name].shape[1] > MOST_QUERIES)


def skipped_outputs(spec: IoSpec) -> list[str]:
    """Names of the outputs that are not compared: counts, and rows of one image without a kind."""
    return [each.name for each in spec.outputs if each.kind == COUNTS or (not each.kind and each.batched is False)]


def plain_outputs(spec: IoSpec, names: Iterable[str] | None = None) -> list[str]:
    """Names of the outputs that make up no detections.

    Args:
        names: of all outputs; None: those that the spec lists.
    """
    others = {*detecting(spec), *skipped_outputs(spec)}
    listed = names if names is not None else (output.name for output in spec.outputs)
    return [name for name in listed if name not in others]


def rows_of(array: np.ndarray, output: OutputSpec) -> np.ndarray:
    """View an output of detections as [images, rows, columns], floats as float32.

    Raises:
        StageError: wrong-shape, where it has other axes than its kind.
    """
    values = np.asarray(array)
    if problem := shape_problem(replace(output, shape=values.shape)):
        raise StageError("wrong-shape", problem)
    values = values if values.dtype.kind in "iub" else values.astype(np.float32, copy=False)
    values = values[None] if output.batched is False else values
    if output.kind == ROWS:
        return values if output.batched is False else np.swapaxes(values, output.axis or 2, 2)
    return values[:, :, 0] if values.ndim == _AXES_OF_SINGLE else values[..., None] if values.ndim == 2 else values


def split_columns(rows: np.ndarray, columns: Sequence[str], classes: int) -> dict[str, np.ndarray]:
    """Split [images, rows, width] into columns by name; scores before others are as many as classes have a name."""
    found, start = {}, 0
    for column in columns:
        width = WIDTHS.get(column) or (classes if column == "scores" and "others" in columns else rows.shape[2] - start)
        found[column] = rows[..., start : start + width]
        start += width
    return found


def read_columns(outputs: Outputs, spec: IoSpec) -> dict[str, np.ndarray]:
    """Split the outputs of a detector into columns: [images, rows, width] by their name, scores times objectness.

    Raises:
        StageError: as `rows_of`.
    """
    found: dict[str, np.ndarray] = {}
    for output in dict.fromkeys(columns_of(spec).values()):
        found |= split_columns(rows_of(outputs[output.name], output), columns_in(output), len(spec.class_names))
    if "objectness" in found:
        found["scores"] = found["scores"] * found.pop("objectness")
    return found


def holds_columns(outputs: Outputs, spec: IoSpec) -> bool:
    """True if the outputs that make up detections are there, with the axes of their kinds."""
    found = [each for each in columns_of(spec).values() if each.name in outputs]
    shaped = (replace(each, shape=np.shape(outputs[each.name])) for each in found)
    return len(found) == len(columns_of(spec)) and not any(map(shape_problem, shaped))


def with_other_columns(outputs: Outputs, spec: IoSpec) -> Outputs:
    """Add what no detection shows, such as coefficients of masks, as `<output>.others`, [images, rows, columns]."""
    output = columns_of(spec).get("others")
    if output is None or not holds_columns(outputs, spec):
        return outputs
    return {**outputs, f"{output.name}.others": read_columns(outputs, spec)["others"]}


def shape_problem(output: OutputSpec) -> str | None:
    """What is wrong with the shape of an output for its kind; None where nothing is, or one of them is not declared."""
    axes = KINDS.get(output.kind or "", Kind()).axes
    if output.shape is None or not axes:
        return None
    if output.batched is False and columns_in(output):
        axes = axes.replace("N, ", "")
    count, last = len(output.shape), output.shape[-1:]
    if output.kind == "boxes" and count == _AXES_OF_SINGLE and output.shape[2] in (1, str(output.shape[2])):
        count -= 1
    is_box = output.kind != "boxes" or last == (4,) or isinstance(last[0] if last else 0, str)
    if count == axes.count(",") + 1 and is_box:
        return None
    named = f"output {output.name!r}, kind {output.kind!r}"
    return coded("wrong-shape", f"{named}: expected {axes}, got shape {list(output.shape)}")


def images_and_rows(output: OutputSpec) -> list[int | str]:
    """Sides of an output of detections that count images and rows, as far as its spec has a shape."""
    if output.batched is False:
        return [1, *output.sides[:1]]
    return [output.sides[0], output.sides[3 - (output.axis or 2) if output.kind == ROWS else 1]] if output.sides else []


def class_name(class_names: Sequence[str], label: int) -> str:
    """What to call a class: by its name, or by its number where it has none."""
    return str(class_names[label]) if 0 <= label < len(class_names) else f"class {label}"


def classes_of(spec: IoSpec) -> str:
    """The output whose largest value says the class of an image."""
    return next(output.name for output in spec.outputs if output.kind in OF_CLASSES)
