"""Detections of one picture, as numbers in a test."""

import numpy as np

from truehalf.io_spec.decode import Detections


def detections(*rows: tuple[float, float, float, float, int, float]) -> Detections:
    values = np.array(rows, np.float32).reshape(-1, 6)
    return Detections(values[:, :4], values[:, 4].astype(np.int64), values[:, 5])


REFERENCE = detections(
    (10, 10, 50, 60, 3, 0.95),
    (60, 20, 90, 50, 7, 0.80),
    (70, 80, 120, 120, 3, 0.60),
    (5, 90, 30, 120, 1, 0.10),
)


def edited(index: int, **changes) -> Detections:
    boxes, labels, scores = REFERENCE.boxes_px.copy(), REFERENCE.labels.copy(), REFERENCE.scores.copy()
    boxes[index] += changes.get("shift", 0.0)
    labels[index] = changes.get("label", labels[index])
    scores[index] = changes.get("score", scores[index])
    return Detections(boxes, labels, scores)
