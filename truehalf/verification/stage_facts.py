"""What a verification measures of one file, as details.json has it."""

from __future__ import annotations

from typing import TypedDict

from truehalf.verification.metrics.classification import ClassAgreement
from truehalf.verification.metrics.detections import DetectionSummary
from truehalf.verification.metrics.precision import SelfPrecision
from truehalf.verification.stage_numbers import AdversarialFacts, SameOutputs


class BatchRow(SameOutputs, total=False):
    """At one batch size; of a failed one the names of the samples in its first run that fails."""

    batch: int
    nonfinite_before: int
    samples: list[str]


class Batches(TypedDict):
    """ "verified" when every size is, "failed" when one fails, else "not verified"."""

    state: str
    reason: str
    sizes: list[BatchRow]


class StageFacts(SelfPrecision, total=False):
    """Of one file; what could not be measured is None, and `reasons` says why, by name.

    batch: samples of a run; unrounded_shapes: what is wrong with shapes that FP16 arithmetic decides where it is
    not rounded; shapes_unknown: why that was not looked at.

    labelled: whether all samples have true boxes; shape_faults (truehalf.verification.output_shapes): of outputs that
    it names nothing else is measured; nan, inf, nonfinite: values of the outputs.

    max_abs_error by output; of queries, paired one to one, those whose reference score reaches the threshold (below it,
    top-k may choose another query, which is no error).

    tensor_rms: the largest error of an output that is no detections, root mean squares as a share of its scale (None
    without such outputs); classification: None of other models and other shapes.

    ap50, ap50_95 are against the true labels, and ap50_fp32, ap50_95_fp32 of the reference on the same samples; without
    true labels self_ap50, self_ap50_95 against the FP32 detections instead; low_self_ap50_95_drop
    (truehalf.verification.metrics.average_precision.low_self_ap_drop) in any case.
    """

    evaluation: str
    provider: str
    batch: int
    unrounded_shapes: str | None
    shapes_unknown: str | None
    samples: int
    labelled: bool
    shape_faults: list[str]
    nan: int
    inf: int
    nonfinite: int
    max_abs_error: dict[str, float]
    tensor_rms: float | None
    classification: ClassAgreement | None
    detections: DetectionSummary | None
    ap50: float | None
    ap50_95: float | None
    ap50_fp32: float | None
    ap50_95_fp32: float | None
    reasons: dict[str, str]
    adversarial: AdversarialFacts
    batches: Batches
