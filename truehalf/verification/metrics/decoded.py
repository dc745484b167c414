"""Detections of a reference and a candidate: near ties of classes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from truehalf.io_spec.decode import Detections, class_scores, decode
from truehalf.io_spec.outputs import DETECTIONS, Outputs, columns_of, task_of
from truehalf.io_spec.spec import IoSpec
from truehalf.verification.metrics.detections import match
from truehalf.verification.metrics.score_errors import LOW_SCORE
from truehalf.verification.metrics.yardstick import spread_of

NEAR = 0.02  # of the spread of logits
NOTHING = Detections(np.zeros((0, 4), np.float32), np.zeros(0, np.int64), np.zeros(0, np.float32))


def near_labels(outputs: Outputs, spec: IoSpec) -> list[np.ndarray]:
    """Of a softmax detector, by sample and in the order of its detections, bool [n, classes]: the class is as good as
    the label, its logit within NEAR of the logits' spread. Empty of other models.
    """
    declared = columns_of(spec).get("scores")
    if declared is None or declared.activation != "softmax":
        return []
    logits = np.asarray(outputs[declared.name], np.float64)
    spread = spread_of(logits)
    scores = class_scores(logits, declared)
    order = np.argsort(-scores.max(axis=2), axis=1, kind="stable")
    classes = np.where(np.isfinite(logits), logits, -np.inf)[..., : scores.shape[2]]
    with np.errstate(invalid="ignore"):
        near = classes.max(axis=2, keepdims=True) - classes <= NEAR * spread
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
    """`decode` whatever the task: of a model that is no detector none, on every sample."""
    if task_of(spec) == DETECTIONS:
        return decode(outputs, spec)
    return [NOTHING] * len(next(iter(outputs.values())))
