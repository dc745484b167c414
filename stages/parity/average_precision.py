"""COCO's average precision, computed by a library: against true labels, or against the reference's own detections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from conf.codes import coded
from stages.parity.detections import Detections


def average_precision(
    found: Sequence[Detections], truth: Sequence[Detections], num_classes: int, max_per_image: int = 100
) -> dict[str, float]:
    """COCO average precision (faster-coco-eval): {"ap50_95": 0..1, "ap50": 0..1}.

    Args:
        found: detections per picture.
        truth: true boxes per picture, in the same order; what lies in a crowd (score 0) is neither right nor wrong.
        num_classes: labels are 0 to num_classes - 1.
        max_per_image: COCO's maxDets.

    Raises:
        ValueError: when the numbers of pictures differ, or the truth holds no box at all but crowds (AP is undefined
            there).
    """
    from faster_coco_eval import COCO, COCOeval_faster

    if len(found) != len(truth):
        raise ValueError(f"average_precision: {len(found)} pictures with detections, {len(truth)} with true boxes")
    if not any((t.scores > 0).any() for t in truth):
        said = "average_precision: the true labels hold no box, so average precision is undefined"
        raise ValueError(coded("no-labels", said))
    annotations: list[dict[str, Any]] = []
    for image_id, picture in enumerate(truth):
        for box, label, score in zip(picture.boxes, picture.labels, picture.scores, strict=True):
            x, y, w, h = _xywh(box)
            annotations.append(
                {"id": len(annotations) + 1, "image_id": image_id, "category_id": int(label), "bbox": [x, y, w, h]}
                | {"area": w * h, "iscrowd": int(score == 0)}
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


def self_ap(
    found: Sequence[Detections],
    reference_found: Sequence[Detections],
    num_classes: int,
    score_threshold: float,
    max_per_image: int = 100,
) -> dict[str, float]:
    """Average precision with the detections of the FP32 reference as labels: {"self_ap50_95": 0..1, "self_ap50": 0..1}.

    Args:
        found: detections per picture.
        reference_found: those of the reference, in the same order; labels are those that reach `score_threshold`.
        num_classes, max_per_image: as for `average_precision`.

    The reference itself has 1.0, or less where a picture holds more than `max_per_image` labels. It is a measure of
    likeness, not of quality.

    Raises:
        ValueError: as `average_precision`.
    """
    kept = [each.scores >= score_threshold for each in reference_found]
    labels = [
        Detections(each.boxes[keep], each.labels[keep], np.ones(int(keep.sum()), np.float32))
        for each, keep in zip(reference_found, kept, strict=True)
    ]
    return {
        f"self_{name}": value for name, value in average_precision(found, labels, num_classes, max_per_image).items()
    }


def _xywh(box: np.ndarray) -> tuple[float, float, float, float]:
    return float(box[0]), float(box[1]), float(box[2] - box[0]), float(box[3] - box[1])
