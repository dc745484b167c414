"""COCO's average precision, computed by a library: against true labels, or against the reference's detections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypedDict

import numpy as np

from truehalf.codes import coded
from truehalf.io_spec.decode import RANK_FLOOR, Detections
from truehalf.io_spec.spec import IoSpec
from truehalf.verification.metrics.detections import LOW_SCORE, SCORE_ERROR, SCORE_SLACK, kept_of

FULL = 10  # detections; fewer are no rim of what a model finds
AP50_MIN = 0.01  # of the FP32 model; below, its average precision says of a file only that it finds nothing, either


class Precision(TypedDict):
    """Average precision against true labels, or Nones and the reason."""

    ap50: float | None
    ap50_95: float | None
    reason: str | None


class SelfPrecision(TypedDict):
    """Average precision with the reference's detections as labels; None where it was not measured."""

    self_ap50: float | None
    self_ap50_95: float | None
    self_ap50_95_drop: float | None
    low_self_ap50_95_drop: float | None


def precision(
    found: Sequence[Detections], truth: Sequence[Detections] | None, spec: IoSpec, of_anchors: bool
) -> Precision:
    """Measure average precision against true labels.

    Args:
        found: by sample.
        truth: true boxes of these samples; None: there are none.
        of_anchors: detections are anchors, so that non-maximum suppression comes first.
    """
    if truth is None or not any((boxes.scores > 0).any() for boxes in truth):
        why = "the samples have no labels" if truth is None else "the true labels hold no box"
        return Precision(ap50=None, ap50_95=None, reason=coded("no-labels", why))
    if of_anchors:
        found = [each.at(kept_of(each)) for each in found]
    measured = average_precision(found, truth, _classes_in(spec, found, truth))
    return Precision(ap50=measured["ap50"], ap50_95=measured["ap50_95"], reason=None)


def why_no_drop(ap50_fp32: float | None) -> str:
    """Say why the FP32 model's average precision is nothing to lose; empty where it is."""
    if ap50_fp32 is None or ap50_fp32 >= AP50_MIN:
        return ""
    found = "none" if ap50_fp32 <= 0 else "next to none"
    return (
        f"the FP32 model finds {found} of the true boxes (AP50 {ap50_fp32:.4f}): "
        "check model.outputs (format, normalized), model.classes and model.preprocessing"
    )


def self_precision(
    found: Sequence[tuple[Detections, Detections]], spec: IoSpec, threshold: float, labelled: bool
) -> SelfPrecision:
    """Measure average precision with the reference's detections as labels.

    Args:
        found: by sample, of the reference and of the file; empty where nothing can be measured.
        labelled: True if there are true labels; then, and where no label reaches the threshold, only the last is
            measured.
    """
    values = SelfPrecision(self_ap50=None, self_ap50_95=None, self_ap50_95_drop=None, low_self_ap50_95_drop=None)
    if not found:
        return values
    expected, others = ([pair[side] for pair in found] for side in (0, 1))
    classes = _classes_in(spec, expected, others)
    values["low_self_ap50_95_drop"] = low_self_ap_drop(others, expected, classes, threshold)
    if labelled or not any((each.scores >= threshold).any() for each in expected):
        return values
    reference, other = (self_ap(side, expected, classes, threshold) for side in (expected, others))
    drop = reference["self_ap50_95"] - other["self_ap50_95"]
    return {**values, "self_ap50": other["self_ap50"], "self_ap50_95": other["self_ap50_95"], "self_ap50_95_drop": drop}


def _classes_in(spec: IoSpec, *detections: Sequence[Detections]) -> int:
    """Count the classes: those that have names, and every label that occurs."""
    largest = max(int(each.labels.max(initial=-1)) for images in detections for each in images)
    return max(largest + 1, len(spec.class_names))


def average_precision(
    found: Sequence[Detections], truth: Sequence[Detections], num_classes: int, max_per_image: int = 100
) -> dict[str, float]:
    """COCO average precision (faster-coco-eval): {"ap50_95": 0..1, "ap50": 0..1}.

    Args:
        found: detections per image.
        truth: true boxes per image, in the same order, at least one of them no crowd; what lies in a crowd (score 0) is
            neither right nor wrong.
        num_classes: labels are 0 to num_classes - 1.
        max_per_image: COCO's maxDets.
    """
    from faster_coco_eval import COCO, COCOeval_faster

    annotations: list[dict[str, Any]] = []
    for image_id, image in enumerate(truth):
        for box, label, score in zip(image.boxes_px, image.labels, image.scores, strict=True):
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
        for i, image in enumerate(found)
        for box, label, score in zip(image.boxes_px, image.labels, image.scores, strict=True)
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
    found: Sequence[Detections], reference_found: Sequence[Detections], num_classes: int, score_threshold: float
) -> dict[str, float]:
    """Measure average precision with the detections of the FP32 reference as labels: {"self_ap50_95": 0..1,
    "self_ap50": 0..1}.

    Args:
        found: detections per image.
        reference_found: those of the reference, in the same order; labels are those that reach `score_threshold`. Those
            that miss it by SCORE_SLACK at most are neither right nor wrong, as in a crowd: rounding decides on which
            side of it they are.
        num_classes: as for `average_precision`.

    The reference itself has 1.0, or less where an image holds more than 100 labels. It is a measure of
    likeness, not of quality.
    """
    labels = []
    for each in reference_found:
        near = each.at(each.scores >= score_threshold - SCORE_SLACK)
        labels.append(replace(near, scores=(near.scores >= score_threshold).astype(np.float32)))
    return {f"self_{name}": value for name, value in average_precision(found, labels, num_classes).items()}


def low_self_ap_drop(
    found: Sequence[Detections], reference_found: Sequence[Detections], num_classes: int, score_threshold: float
) -> float | None:
    """Measure the loss of AP50-95, 0 to 1, with the detections of the FP32 reference as labels, those of low scores,
    too.

    Labels are the reference's detections with an area that score LOW_SCORE or more (`score_threshold`, where that is
    less), and RANK_FLOOR of truehalf.io_spec.decode bounds what is compared with them: the reference
    itself has 1.0 then, as all are counted. Labels within SCORE_ERROR of the least score that it ever outputs are
    none, unless they reach `score_threshold`: a score limit inside the model may cut them off. Of an image that fills
    all places (as many detections as any, FULL at least), those within SCORE_ERROR of its least score are neither
    right nor wrong, as in a crowd: rounding exchanges the last of them.

    Args:
        found, reference_found, num_classes, score_threshold: as for `self_ap`.

    Returns:
        None where there is no label.
    """
    least = min((float(scores.min()) for each in reference_found if (scores := _positive(each.scores)).size), default=0)
    floor = min(max(LOW_SCORE, least + SCORE_ERROR), score_threshold)
    places = max(FULL, *(len(_positive(each.scores)) for each in reference_found))
    labels = []
    for each in reference_found:
        kept = each.at((each.scores >= floor) & (each.boxes_px[:, 2:] > each.boxes_px[:, :2]).all(axis=1))
        last = 0.0
        if len(_positive(each.scores)) == places:
            last = min(float(each.scores.min()) + SCORE_ERROR, score_threshold)
        labels.append(replace(kept, scores=(kept.scores >= last).astype(np.float32)))
    if not any((each.scores > 0).any() for each in labels):
        return None
    counted = [each.at(each.scores >= min(RANK_FLOOR, floor)) for each in found]
    most = max(len(each.scores) for each in (*labels, *counted))
    return 1.0 - average_precision(counted, labels, num_classes, max(most, 100))["ap50_95"]


def _positive(scores: np.ndarray) -> np.ndarray:
    return scores[scores > 0]


def _xywh(box: np.ndarray) -> tuple[float, float, float, float]:
    return float(box[0]), float(box[1]), float(box[2] - box[0]), float(box[3] - box[1])
