"""Detections in raw outputs, as the I/O spec declares what outputs are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from truehalf.errors import StageError
from truehalf.io_spec.columns import anchored
from truehalf.io_spec.outputs import DETECTIONS, MOST_QUERIES, Outputs, by_kind, picture_size, task_of
from truehalf.io_spec.spec import FIRST, IoSpec, OutputSpec
from truehalf.verification.metrics.detections import Detections, match
from truehalf.verification.metrics.scales import spread_along
from truehalf.verification.metrics.score_errors import LOW_SCORE, RANK_FLOOR

NOTHING = Detections(np.zeros((0, 4), np.float32), np.zeros(0, np.int64), np.zeros(0, np.float32))


def detections_of(outputs: Outputs, spec: IoSpec, size: tuple[int, int] | None = None) -> list[Detections]:
    """Detections per sample, boxes in pixels of the model's input; as many as the model has queries, or outputs.

    Args:
        outputs: by name, [samples, ...].
        spec: the I/O spec, of task "detections".
        size: height and width of the input in pixels; default: those of the spec's input of images.

    Raises:
        StageError: when neither says the size and boxes are normalised.
    """
    kinds = by_kind(spec)
    boxes = kinds["boxes"]
    known = picture_size(spec, size)
    if known is None and boxes.normalized is not False:
        raise StageError(
            "needs-value",
            "boxes are normalised, and the I/O spec does not say the size of the image: its input has shape "
            f"{list(spec.image_input.sides)}; expected height and width as numbers",
        )
    xyxy = corners(outputs[boxes.name], boxes, known or (1, 1))
    if "logits" not in kinds:
        return read_detections(outputs[kinds["scores"].name], outputs[kinds["labels"].name], xyxy)
    return decode(outputs[kinds["logits"].name], xyxy, kinds["logits"])


def near_labels(outputs: Outputs, spec: IoSpec, margin: float) -> list[np.ndarray]:
    """Of a softmax detector, by sample and in the order of its detections, bool [n, classes]: the class is as good as
    the label, its logit within `margin` of the logits' spread. Empty of other models.
    """
    declared = by_kind(spec).get("logits")
    if declared is None or declared.activation != "softmax":
        return []
    logits = np.asarray(outputs[declared.name], np.float64)
    spread = float(spread_along(logits, 2).max(initial=0.0))
    scores = class_scores(logits, declared)
    order = np.argsort(-scores.max(axis=2), axis=1, kind="stable")
    classes = np.where(np.isfinite(logits), logits, -np.inf)[..., : scores.shape[2]]
    with np.errstate(invalid="ignore"):
        near = classes.max(axis=2, keepdims=True) - classes <= margin * spread
    return list(np.take_along_axis(near, order[..., None], axis=1))


def with_tied_labels(
    reference: Detections, candidate: Detections, tied: np.ndarray, iou_threshold: float
) -> tuple[Detections, int]:
    """The candidate with the reference's label on each detection that is the same one but for a near tie of classes,
    and how many they are.

    Args:
        tied: bool [n, classes], of each reference detection the classes that are as good as its label.
    """
    if not (tied.sum(axis=1) > 1).any():
        return candidate, 0
    labels = candidate.labels.copy()
    pairs = match(reference, candidate, LOW_SCORE, iou_threshold).relabelled
    settled = [(r, c) for r, c in pairs if labels[c] < tied.shape[1] and tied[r, labels[c]]]
    for r, c in settled:
        labels[c] = reference.labels[r]
    return replace(candidate, labels=labels), len(settled)


def found_in(outputs: Outputs, spec: IoSpec) -> list[Detections]:
    """`detections_of` whatever the task: of a model that is no detector none, on every sample."""
    if task_of(spec) == DETECTIONS:
        return detections_of(outputs, spec)
    return [NOTHING] * len(next(iter(outputs.values())))


def of_anchors(outputs: Outputs, spec: IoSpec) -> bool:
    """Whether a detector's rows are anchors (truehalf.io_spec.columns.anchored), or are more than queries are."""
    declared = by_kind(spec).get("logits")
    return anchored(spec) or (declared is not None and outputs[declared.name].shape[1] > MOST_QUERIES)


def confident_queries(outputs: Outputs, spec: IoSpec, score_threshold: float) -> np.ndarray:
    """bool [images, queries] of a detector: the best score of a query, or the score of a detection where top-k is
    inside the model, reaches the threshold.
    """
    kinds = by_kind(spec)
    if "logits" not in kinds:
        return np.asarray(outputs[kinds["scores"].name] >= score_threshold)
    scores = class_scores(outputs[kinds["logits"].name], kinds["logits"])
    return np.asarray(scores.max(axis=2) >= score_threshold)


# --- of each kind of outputs ------------------------------------------------------------------------------------------


def decode(logits: np.ndarray, boxes: np.ndarray, declared: OutputSpec) -> list[Detections]:
    """Turn DETR outputs into detections, best first, as many of each image as there are queries; of more than
    MOST_QUERIES only those that reach RANK_FLOOR, below which nothing is compared.

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
        found = image_labels.reshape(-1)[best].astype(np.int64)
        result.append(Detections(image_boxes[best // per_query], found, flat[best]))
    return result


def class_scores(logits: np.ndarray, declared: OutputSpec) -> np.ndarray:
    """float32 [N, queries, classes], 0..1, of logits as `decode` takes them; without the class "no object"."""
    logits = np.asarray(logits, np.float32)
    if declared.activation == "softmax":
        scores = _softmax(logits)
    else:
        scores = np.where(np.isfinite(logits), logits if declared.activation == "identity" else _sigmoid(logits), 0.0)
    is_first = declared.no_object == FIRST
    of_classes = scores[..., 1:] if is_first else scores[..., : -1 if declared.no_object else None]
    return np.asarray(of_classes, np.float32)


def read_detections(scores: np.ndarray, labels: np.ndarray, boxes: np.ndarray) -> list[Detections]:
    """Detections of a model that does the top-k inside, best first.

    Args:
        scores: [N, n], 0..1; a NaN or Inf becomes 0.
        labels: [N, n], integers in any numeric type; what is no integer becomes -1.
        boxes: [N, n, 4], see `corners`.
    """
    scores = np.nan_to_num(np.asarray(scores, np.float32), nan=0.0, posinf=0.0, neginf=0.0)
    numbers = np.asarray(labels, np.float64)
    whole = np.where(np.isfinite(numbers) & (numbers == np.rint(numbers)), numbers, -1.0).astype(np.int64)
    result = []
    for one, label, box in zip(scores, whole, boxes, strict=True):
        result.append(Detections(box, label, one).at(np.argsort(-one, kind="stable")))
    return result


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
