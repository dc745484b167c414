"""Detections in a model's outputs, in boxes of pixels, by the layout that its I/O spec declares."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from truehalf.errors import StageError
from truehalf.io_spec.outputs import MOST_QUERIES, ROWS, Outputs, columns_of, read_columns
from truehalf.io_spec.spec import FIRST, IoSpec, OutputSpec

RANK_FLOOR = 0.05  # scores of anchors below it are not compared


@dataclass(frozen=True)
class Detections:
    """Boxes of one image.

    Attributes:
        boxes_px: float32 [n, 4], xyxy in pixels of the model's input.
        labels: int64 [n].
        scores: float32 [n], 0 to 1. Of true labels: 1, and 0 of a crowd, in which detections are not judged.
    """

    boxes_px: np.ndarray
    labels: np.ndarray
    scores: np.ndarray

    def at(self, places: np.ndarray | slice) -> Detections:
        """Select detections by bool [n], positions or a slice."""
        return Detections(self.boxes_px[places], self.labels[places], self.scores[places])


def decode(outputs: Outputs, spec: IoSpec, size: tuple[int, int] | None = None) -> list[Detections]:
    """Read the detections of each image, best first, boxes in pixels of the model's input: as many as the model has
    queries, or outputs.

    Args:
        outputs: by name, [images, ...], or of one image where they are not batched.
        spec: of task "detections".
        size: height and width of the input in pixels; None: those of the spec's input of images.

    Raises:
        StageError: neither says the size and boxes are normalised, or an output has other axes than its kind.
    """
    columns, boxes = read_columns(outputs, spec), columns_of(spec)["boxes"]
    known = image_size(spec, size)
    if known is None and boxes.normalized is not False:
        raise StageError(
            "needs-value",
            "boxes are normalised, and the I/O spec does not say the size of the image: its input has shape "
            f"{list(spec.image_input.sides)}; expected height and width as numbers",
        )
    xyxy = corners(columns["boxes"], boxes, known or (1, 1))
    if "scores" in columns:
        return of_queries(columns["scores"], xyxy, score_output(spec))
    return of_top_k(columns["score"][..., 0], columns["label"][..., 0], xyxy)


def score_output(spec: IoSpec) -> OutputSpec:
    """The output that holds the score of each class; those among other columns are scores already."""
    output = columns_of(spec)["scores"]
    return replace(output, activation="identity") if output.kind == ROWS else output


def confident(outputs: Outputs, spec: IoSpec, score_threshold: float) -> np.ndarray:
    """bool [images, rows]: the best score of a query or anchor, or the score of a detection where top-k is inside the
    model, reaches the threshold.
    """
    columns = read_columns(outputs, spec)
    scores = columns["score"] if "score" in columns else class_scores(columns["scores"], score_output(spec))
    return np.asarray(scores.max(axis=2) >= score_threshold)


def image_size(spec: IoSpec, size: tuple[int, int] | None = None) -> tuple[int, int] | None:
    """Height and width of the model's input in pixels: `size`, or those of the spec's input of images, where they vary
    the size that its samples have; None where neither says them.
    """
    fixed = [side for side in spec.image_input.height_width if isinstance(side, int)]
    declared = fixed if len(fixed) == 2 else spec.image_input.size
    return size or (None if declared is None else (declared[0], declared[1]))


def of_queries(logits: np.ndarray, boxes: np.ndarray, declared: OutputSpec) -> list[Detections]:
    """Detections of each image, best first, as many as there are queries; of more than MOST_QUERIES only those that
    reach RANK_FLOOR, below which nothing is compared.

    Args:
        logits: [N, queries, classes].
        boxes: [N, queries, 4], see `corners`.
        declared: activation and no_object of the logits. "sigmoid", and where nothing is declared: each (query, class)
            pair may be a detection, with its score; "identity": so, too, and logits are these scores, 0..1;
            "softmax": each query is one, of its best class; with no_object a class takes part in it and is never
            a detection.

    Non-finite logits score 0 and non-finite boxes become empty, so that a broken model loses precision instead of
    stopping the comparison; the tensor metrics count them. Of a softmax, -Inf is a class that cannot be; a NaN or +Inf
    leaves the query without any score.
    """
    scores = class_scores(logits, declared)
    labels = np.broadcast_to(np.arange(scores.shape[2]), scores.shape)
    if declared.activation == "softmax":
        labels, scores = scores.argmax(axis=2)[..., None], scores.max(axis=2, keepdims=True)
    per_query = scores.shape[2]
    result = []
    for image_scores, image_labels, image_boxes in zip(scores, labels, boxes, strict=True):
        flat = image_scores.reshape(-1)
        counted = np.flatnonzero(flat >= (RANK_FLOOR if len(image_boxes) > MOST_QUERIES else -np.inf))
        best = counted[np.argsort(-flat[counted], kind="stable")][: len(image_boxes)]
        of_best = image_labels.reshape(-1)[best].astype(np.int64)
        result.append(Detections(image_boxes[best // per_query], of_best, flat[best]))
    return result


def of_top_k(scores: np.ndarray, labels: np.ndarray, boxes: np.ndarray) -> list[Detections]:
    """Detections of each image of a model that does the top-k inside, best first.

    Args:
        scores: [N, n], 0..1; a NaN or Inf becomes 0.
        labels: [N, n], integers in any numeric type; any other number becomes -1.
        boxes: [N, n, 4], see `corners`.
    """
    scores = np.nan_to_num(np.asarray(scores, np.float32), nan=0.0, posinf=0.0, neginf=0.0)
    numbers = np.asarray(labels, np.float64)
    whole = np.where(np.isfinite(numbers) & (numbers == np.rint(numbers)), numbers, -1.0).astype(np.int64)
    return [
        Detections(box, label, score).at(np.argsort(-score, kind="stable"))
        for score, label, box in zip(scores, whole, boxes, strict=True)
    ]


def class_scores(logits: np.ndarray, declared: OutputSpec) -> np.ndarray:
    """float32 [N, queries, classes], 0..1, of logits as `of_queries` takes them; without the class "no object"."""
    logits = np.asarray(logits, np.float32)
    if declared.activation == "softmax":
        scores = _softmax(logits)
    else:
        scores = np.where(np.isfinite(logits), logits if declared.activation == "identity" else _sigmoid(logits), 0.0)
    is_first = declared.no_object == FIRST
    of_classes = scores[..., 1:] if is_first else scores[..., : -1 if declared.no_object else None]
    return np.asarray(of_classes, np.float32)


def corners(boxes: np.ndarray, declared: OutputSpec, size: tuple[int, int]) -> np.ndarray:
    """Boxes as xyxy in pixels, float32; a box with a NaN or Inf in it is empty.

    Args:
        boxes: [..., 4].
        declared: format (by default "cxcywh") and normalized (by default True: to 0..1 of the image).
        size: height and width of the image in pixels.
    """
    values = np.asarray(boxes, np.float32)
    values = np.where(np.isfinite(values).all(axis=-1, keepdims=True), values, np.float32(0))
    first, second = values[..., :2], values[..., 2:]
    if declared.format == "yxyx":
        values = values[..., [1, 0, 3, 2]]
    elif declared.format == "xywh":
        values = np.concatenate([first, first + second], axis=-1)
    elif declared.format != "xyxy":
        values = np.concatenate([first - second / 2, first + second / 2], axis=-1)
    if declared.normalized is not False:
        values = values * np.array([*size[::-1], *size[::-1]], np.float32)
    return values.astype(np.float32)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(1.0 / (1.0 + np.exp(-x)))


def _softmax(x: np.ndarray) -> np.ndarray:
    """Over the last axis; rows with a NaN or +Inf, or with nothing but -Inf, are all 0."""
    usable = ~(np.isnan(x) | np.isposinf(x)).any(axis=-1, keepdims=True) & np.isfinite(x).any(axis=-1, keepdims=True)
    safe = np.where(usable, x, np.float32(0))
    powers = np.exp(safe - safe.max(axis=-1, keepdims=True))
    return np.asarray(np.where(usable, powers / powers.sum(axis=-1, keepdims=True), 0.0), np.float32)
