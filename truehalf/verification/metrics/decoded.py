"""Detections in raw outputs, as the I/O spec declares what outputs are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from truehalf.errors import StageError
from truehalf.io_spec.outputs import DETECTIONS, Outputs, by_kind, first_shape, picture_size, task_of
from truehalf.verification.metrics.detections import Detections, class_scores, decode, read_detections

NOTHING = Detections(np.zeros((0, 4), np.float32), np.zeros(0, np.int64), np.zeros(0, np.float32))


def detections_of(outputs: Outputs, spec: Mapping[str, Any], size: tuple[int, int] | None = None) -> list[Detections]:
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
    # what specs of ours have always said without saying it
    layout = {"box_format": boxes.get("format", "cxcywh"), "normalized": boxes.get("normalized", True)}
    known = picture_size(spec, size)
    if known is None and layout["normalized"]:
        raise StageError(
            "needs-value",
            "boxes are normalised, and the I/O spec does not say the size of the image: its first input has shape "
            f"{first_shape(spec)}; expected height and width as numbers",
        )
    height, width = known or (1, 1)
    values = outputs[boxes["name"]]
    if "logits" not in kinds:
        scores, labels = outputs[kinds["scores"]["name"]], outputs[kinds["labels"]["name"]]
        return read_detections(scores, labels, values, width, height, **layout)
    logits = outputs[kinds["logits"]["name"]]
    return decode(logits, values, width, height, logits.shape[1], **_meaning(kinds["logits"]), **layout)


def found_in(outputs: Outputs, spec: Mapping[str, Any]) -> list[Detections]:
    """`detections_of` whatever the task: of a model that is no detector none, on every sample."""
    if task_of(spec) == DETECTIONS:
        return detections_of(outputs, spec)
    return [NOTHING] * len(next(iter(outputs.values())))


def confident_queries(outputs: Outputs, spec: Mapping[str, Any], score_threshold: float) -> np.ndarray:
    """bool [images, queries] of a detector: the best score of a query, or the score of a detection where top-k is
    inside the model, reaches the threshold.
    """
    kinds = by_kind(spec)
    if "logits" not in kinds:
        return np.asarray(outputs[kinds["scores"]["name"]] >= score_threshold)
    scores = class_scores(outputs[kinds["logits"]["name"]], **_meaning(kinds["logits"]))
    return np.asarray(scores.max(axis=2) >= score_threshold)


def _meaning(logits: Mapping[str, Any]) -> dict[str, Any]:
    return {"activation": logits.get("activation", "sigmoid"), "no_object": logits.get("no_object", False)}
