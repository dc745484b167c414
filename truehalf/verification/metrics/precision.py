"""Average precision of a file in a chain: against the true labels, and against the detections of the reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

from truehalf.codes import coded
from truehalf.io_spec.decode import Detections
from truehalf.io_spec.outputs import DETECTIONS, finds_anchors, task_of
from truehalf.io_spec.spec import IoSpec
from truehalf.verification.metrics.average_precision import average_precision, low_self_ap_drop, self_ap
from truehalf.verification.metrics.detections import kept_of

if TYPE_CHECKING:
    from truehalf.verification.chain.reference import Reference

AP50_MIN = 0.01  # of the FP32 model; below, its average precision says of a file only that it finds nothing, either
NO_DETECTOR = "the model outputs no boxes with scores and classes"


class SelfPrecision(TypedDict):
    """Average precision with the reference's detections as labels; None where it was not measured."""

    self_ap50: float | None
    self_ap50_95: float | None
    self_ap50_95_drop: float | None
    low_self_ap50_95_drop: float | None


class Precision(TypedDict):
    """Average precision against true labels, or Nones and the reason."""

    ap50: float | None
    ap50_95: float | None
    reason: str | None


def precision(reference: Reference, found: Sequence[Detections]) -> Precision:
    """Of detections on the first samples; of anchors, after non-maximum suppression."""
    if reason := _why_no_precision(reference, len(found)):
        return Precision(ap50=None, ap50_95=None, reason=reason)
    if finds_anchors(reference.spec, reference.outputs):
        found = [each.at(kept_of(each)) for each in found]
    truth = (reference.truth or [])[: len(found)]
    measured = average_precision(found, truth, classes_in(reference.spec, found, truth))
    return Precision(ap50=measured["ap50"], ap50_95=measured["ap50_95"], reason=None)


def _why_no_precision(reference: Reference, count: int) -> str | None:
    if reference.unusable:
        return reference.unusable
    if task_of(reference.spec) != DETECTIONS:
        return NO_DETECTOR
    if reference.truth is None:
        return coded("no-labels", "the samples have no labels")
    if not any((boxes.scores > 0).any() for boxes in reference.truth[:count]):
        return coded("no-labels", "the true labels hold no box")
    return None


def why_no_drop(ap50_fp32: float | None) -> str | None:
    """Why the FP32 model's average precision is nothing to lose; None where it is."""
    if ap50_fp32 is None or ap50_fp32 >= AP50_MIN:
        return None
    found = "none" if ap50_fp32 <= 0 else "next to none"
    return (
        f"the FP32 model finds {found} of the true boxes (AP50 {ap50_fp32:.4f}): "
        "check model.outputs (format, normalized), model.classes and model.preprocessing"
    )


def classes_in(spec: IoSpec, *detections: Sequence[Detections]) -> int:
    """The number of classes: those that have names, and every label that occurs."""
    largest = max(int(each.labels.max(initial=-1)) for images in detections for each in images)
    return max(largest + 1, len(spec.class_names))


def self_precision(
    found: Sequence[tuple[Detections, Detections]], spec: IoSpec, threshold: float, labelled: bool = False
) -> SelfPrecision:
    """Average precision with the reference's detections as labels.

    Args:
        found: by sample, of the reference and of the file; empty where nothing can be measured.
        labelled: whether there are true labels; then, and where no label reaches the threshold, only the last is
            measured.
    """
    values = SelfPrecision(self_ap50=None, self_ap50_95=None, self_ap50_95_drop=None, low_self_ap50_95_drop=None)
    if not found:
        return values
    expected, others = ([pair[side] for pair in found] for side in (0, 1))
    classes = classes_in(spec, expected, others)
    values["low_self_ap50_95_drop"] = low_self_ap_drop(others, expected, classes, threshold)
    if labelled or not any((each.scores >= threshold).any() for each in expected):
        return values
    reference, other = (self_ap(side, expected, classes, threshold) for side in (expected, others))
    drop = reference["self_ap50_95"] - other["self_ap50_95"]
    return {**values, "self_ap50": other["self_ap50"], "self_ap50_95": other["self_ap50_95"], "self_ap50_95_drop": drop}
