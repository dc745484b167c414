"""Detections in raw outputs, as the I/O spec declares what outputs are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from truehalf.errors import StageError
from truehalf.io_spec.outputs import DETECTIONS, MOST_QUERIES, Outputs, by_kind, picture_size, task_of
from truehalf.io_spec.spec import IoSpec
from truehalf.verification.metrics.detections import (
    Detections,
    class_scores,
    corners,
    decode,
    match,
    read_detections,
)
from truehalf.verification.metrics.scales import spread_along
from truehalf.verification.metrics.score_errors import LOW_SCORE

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
    """Whether a detector's rows are anchors, of which several find one object."""
    kinds = by_kind(spec)
    return "logits" in kinds and outputs[kinds["logits"].name].shape[1] > MOST_QUERIES


def confident_queries(outputs: Outputs, spec: IoSpec, score_threshold: float) -> np.ndarray:
    """bool [images, queries] of a detector: the best score of a query, or the score of a detection where top-k is
    inside the model, reaches the threshold.
    """
    kinds = by_kind(spec)
    if "logits" not in kinds:
        return np.asarray(outputs[kinds["scores"].name] >= score_threshold)
    scores = class_scores(outputs[kinds["logits"].name], kinds["logits"])
    return np.asarray(scores.max(axis=2) >= score_threshold)
