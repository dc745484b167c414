"""Verification as JSON: reports/verify.json, as the pipeline reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from truehalf.json_values import Json, JsonObject, from_fields

if TYPE_CHECKING:
    from truehalf.verification.chain.failing import SuggestedPins


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
    evaluation: str = ""
    provider: str = ""
    samples: int = 0
    place: JsonObject | None = None
    suggestion: SuggestedPins | None = None
    stages: Mapping[str, Mapping[str, Json]] = field(default_factory=dict)
    metrics: Mapping[str, Json] = field(default_factory=dict)
    tensor_rms: float | None = None
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
    ap50_95_fp32: float | None = None
    ap50_95_drop: float | None = None
    self_ap50_95: float | None = None
    box_error_px_p99: float | None = None
    box_error_px_max: float | None = None
    score_error_p99: float | None = None
    score_error_max: float | None = None
    rank_error_p99: float | None = None
    top1_agreement: float | None = None

    @classmethod
    def from_json(cls, content: JsonObject) -> VerifyReport:
        return from_fields(cls, content)
