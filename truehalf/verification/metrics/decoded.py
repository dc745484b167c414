"""Detections in raw outputs, as the I/O spec declares what outputs are."""

from __future__ import annotations

import numpy as np

from truehalf.errors import StageError
from truehalf.io_spec.outputs import DETECTIONS, Outputs, by_kind, picture_size, task_of
from truehalf.io_spec.spec import IoSpec
from truehalf.verification.metrics.detections import Detections, class_scores, corners, decode, read_detections

NOTHING = Detections(np.zeros((0, 4), np.float32), np.zeros(0, np.int64), np.zeros(0, np.float32))


def detections_of(outputs: Outputs, spec: IoSpec, size: tuple[int, int] | None = None) -> list[Detections]:
    """Detections per sample, boxes in pixels of the model's input; as many as the model has queries, or outputs.

    Args:
        outputs: by name, [samples, ...].
        spec: the I/O spec, of task "detections".
        size: height and width of the input in pixels; default: those of the spec's first input.

    Raises:
        StageError: when neither says the size and boxes are normalised.
    """
    kinds = by_kind(spec)
    boxes = kinds["boxes"]
    known = picture_size(spec, size)
    if known is None and boxes.normalized is not False:
        raise StageError(
            "needs-value",
            "boxes are normalised, and the I/O spec does not say the size of the image: its first input has shape "
            f"{list(spec.first_input.sides)}; expected height and width as numbers",
        )
    xyxy = corners(outputs[boxes.name], boxes, known or (1, 1))
    if "logits" not in kinds:
        return read_detections(outputs[kinds["scores"].name], outputs[kinds["labels"].name], xyxy)
    return decode(outputs[kinds["logits"].name], xyxy, kinds["logits"])


def found_in(outputs: Outputs, spec: IoSpec) -> list[Detections]:
    """`detections_of` whatever the task: of a model that is no detector none, on every sample."""
    if task_of(spec) == DETECTIONS:
        return detections_of(outputs, spec)
    return [NOTHING] * len(next(iter(outputs.values())))


def confident_queries(outputs: Outputs, spec: IoSpec, score_threshold: float) -> np.ndarray:
    """bool [images, queries] of a detector: the best score of a query, or the score of a detection where top-k is
    inside the model, reaches the threshold.
    """
    kinds = by_kind(spec)
    if "logits" not in kinds:
        return np.asarray(outputs[kinds["scores"].name] >= score_threshold)
    scores = class_scores(outputs[kinds["logits"].name], kinds["logits"])
    return np.asarray(scores.max(axis=2) >= score_threshold)
