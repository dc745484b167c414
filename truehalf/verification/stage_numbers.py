"""Verification as JSON: reports/verify.json, and the numbers of one file or of an engine beside the FP32 reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypedDict

from truehalf.json_values import Json, JsonObject, from_fields

if TYPE_CHECKING:
    from truehalf.verification.chain.suggested_pins import SuggestedPins
    from truehalf.verification.metrics.detections import DetectionSummary


class SameOutputs(TypedDict, total=False):
    """Whether a run outputs what is expected: state and reason; where it ran what was found, of detections or of other
    outputs (truehalf.verification.judging.judge.same_outputs).
    """

    state: str
    reason: str
    matched_fraction: float | None
    extra: float | None
    reference: float | None
    tensor_rms: float | None
    nonfinite: int


class AdversarialFacts(SameOutputs, total=False):
    """On the adversarial samples."""

    samples: int
    max_abs_error: dict[str, float]


class StageNumbers(TypedDict, total=False):
    """Headline of a file that verify measured; of the engine with its state and reason."""

    state: str
    reason: str
    matched_fraction: float | None
    box_error_px_p99: float | None
    score_error_p99: float | None
    top1_agreement: float | None
    max_abs_error: dict[str, float]
    ap50: float | None
    ap50_95: float | None
    ap50_95_fp32: float | None
    self_ap50_95: float | None
    tensor_rms: float | None
    nonfinite: int


@dataclass(frozen=True)
class VerifyReport:
    """Content of reports/verify.json, as truehalf.verification.report.Report.to_json writes it; that class has the
    meaning of the keys.
    """

    status: str = "done"
    verdict: str = "not verified"
    reasons: Sequence[str] = ()
    not_verified: Sequence[str] = ()
    findings: Sequence[JsonObject] = ()
    checks: Mapping[str, JsonObject] = field(default_factory=dict)
    task: str = ""
    evaluation: str = ""
    provider: str = ""
    reference_evaluation: str = ""
    samples: int = 0
    left_out: Sequence[str] = ()
    worst_sample: str | None = None
    first_bad_node: str | None = None
    suspects: Sequence[JsonObject] = ()
    place: JsonObject | None = None
    suggestion: SuggestedPins | None = None
    preprocessing: JsonObject | None = None
    proposed: JsonObject | None = None
    plugins: Sequence[str] = ()
    stages: Mapping[str, StageNumbers] = field(default_factory=dict)
    outputs: Mapping[str, JsonObject] = field(default_factory=dict)
    detections: DetectionSummary | None = None
    classification: JsonObject | None = None
    metrics: Mapping[str, Json] = field(default_factory=dict)
    average_precision: Mapping[str, float | None] = field(default_factory=dict)
    tensor_rms: float | None = None
    max_abs_error: Mapping[str, float] = field(default_factory=dict)
    nan: int = 0
    inf: int = 0
    matched_fraction: float | None = None
    reference: int | None = None
    matched: int | None = None
    missed: int | None = None
    extra: int | None = None
    label_flips: int | None = None
    ap50: float | None = None
    ap50_95: float | None = None
    ap50_fp32: float | None = None
    ap50_95_fp32: float | None = None
    ap50_95_drop: float | None = None
    self_ap50: float | None = None
    self_ap50_95: float | None = None
    low_self_ap50_95_drop: float | None = None
    box_error_px_p50: float | None = None
    box_error_px_p99: float | None = None
    box_error_px_max: float | None = None
    score_error_p50: float | None = None
    score_error_p99: float | None = None
    score_error_max: float | None = None
    rank_error_p50: float | None = None
    rank_error_p99: float | None = None
    rank_error_max: float | None = None
    top1_agreement: float | None = None
    top5_agreement: float | None = None
    kl_max: float | None = None

    @classmethod
    def from_json(cls, content: JsonObject) -> VerifyReport:
        return from_fields(cls, content)
