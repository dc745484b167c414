"""Detections: from raw outputs to scored boxes, and average precision by a library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Detections:
    """Boxes of one picture.

    Attributes:
        boxes: float32 [n, 4], xyxy in pixels.
        labels: int64 [n].
        scores: float32 [n], 0 to 1; all ones for true labels.
    """

    boxes: np.ndarray
    labels: np.ndarray
    scores: np.ndarray


def decode(logits: np.ndarray, boxes: np.ndarray, width: int, height: int, top_k: int) -> list[Detections]:
    """Turn DETR outputs into detections: the `top_k` best (query, class) pairs of each picture, best first.

    Args:
        logits: [N, queries, classes], sigmoid scores.
        boxes: [N, queries, 4], cxcywh in 0..1.
        width, height: size of the picture in pixels.
        top_k: pairs kept per picture.

    Non-finite logits score 0 and non-finite boxes become empty, so that a broken model loses precision instead of
    stopping the comparison; the tensor metrics count them.
    """
    logits = np.asarray(logits, np.float32)
    boxes = np.nan_to_num(np.asarray(boxes, np.float32), nan=0.0, posinf=0.0, neginf=0.0)
    scores = np.where(np.isfinite(logits), _sigmoid(logits), 0.0).astype(np.float32)
    classes = scores.shape[2]
    result = []
    for picture_scores, picture_boxes in zip(scores, boxes, strict=True):
        flat = picture_scores.reshape(-1)
        best = np.argsort(-flat, kind="stable")[:top_k]
        centre, extent = picture_boxes[best // classes, :2], picture_boxes[best // classes, 2:]
        xyxy = np.concatenate([centre - extent / 2, centre + extent / 2], axis=1)
        xyxy *= np.array([width, height, width, height], np.float32)
        result.append(Detections(xyxy.astype(np.float32), (best % classes).astype(np.int64), flat[best]))
    return result


def _sigmoid(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore"):
        return 1.0 / (1.0 + np.exp(-x))


def average_precision(
    found: Sequence[Detections], truth: Sequence[Detections], num_classes: int, max_per_image: int = 100
) -> dict[str, float]:
    """COCO average precision (faster-coco-eval): {"ap50_95": 0..1, "ap50": 0..1}.

    Args:
        found: detections per picture.
        truth: true boxes per picture, in the same order.
        num_classes: labels are 0 to num_classes - 1.
        max_per_image: COCO's maxDets.

    Raises:
        ValueError: when the numbers of pictures differ, or the truth holds no box at all (AP is undefined there).
    """
    from faster_coco_eval import COCO, COCOeval_faster

    if len(found) != len(truth):
        raise ValueError(f"average_precision: {len(found)} pictures with detections, {len(truth)} with true boxes")
    if not any(len(t.labels) for t in truth):
        raise ValueError("average_precision: the true labels hold no box, so average precision is undefined")
    annotations = []
    for image_id, picture in enumerate(truth):
        for box, label in zip(picture.boxes, picture.labels, strict=True):
            x, y, w, h = _xywh(box)
            annotations.append(
                {"id": len(annotations) + 1, "image_id": image_id, "category_id": int(label), "bbox": [x, y, w, h]}
                | {"area": w * h, "iscrowd": 0}
            )
    labelled = COCO(
        {
            "images": [{"id": i} for i in range(len(truth))],
            "annotations": annotations,
            "categories": [{"id": c, "name": str(c)} for c in range(num_classes)],
        }
    )
    results = [
        {"image_id": i, "category_id": int(label), "bbox": list(_xywh(box)), "score": float(score)}
        for i, picture in enumerate(found)
        for box, label, score in zip(picture.boxes, picture.labels, picture.scores, strict=True)
    ]
    if not results:
        return {"ap50_95": 0.0, "ap50": 0.0}
    evaluation = COCOeval_faster(labelled, labelled.loadRes(results), iouType="bbox", print_function=lambda *_: None)
    evaluation.params.maxDets = [1, 10, max_per_image]
    evaluation.evaluate()
    evaluation.accumulate()
    evaluation.summarize()
    return {"ap50_95": float(evaluation.stats[0]), "ap50": float(evaluation.stats[1])}


def _xywh(box: np.ndarray) -> tuple[float, float, float, float]:
    return float(box[0]), float(box[1]), float(box[2] - box[0]), float(box[3] - box[1])
