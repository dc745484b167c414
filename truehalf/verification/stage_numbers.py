"""Verification as JSON: reports/verify.json, as the pipeline reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from truehalf.json_values import Json, JsonObject, from_fields


@dataclass(frozen=True)
class VerifyReport:
    """Read keys of reports/verify.json; truehalf.verification.report.Report has their meaning."""

    verdict: str = "not verified"
    reasons: Sequence[str] = ()
    not_verified: Sequence[str] = ()
    evaluation: str = ""
    provider: str = ""
    samples: int = 0
    place: JsonObject | None = None
    stages: Mapping[str, Mapping[str, Json]] = field(default_factory=dict)
    metrics: Mapping[str, Json] = field(default_factory=dict)
    tensor_rms: float | None = None
    nan: int = 0
    inf: int = 0
    matched_fraction: float | None = None
    reference: int | None = None
    matched: int | None = None
    ap50_95: float | None = None
    ap50_95_fp32: float | None = None
    top1_agreement: float | None = None

    @classmethod
    def from_json(cls, content: JsonObject) -> VerifyReport:
        return from_fields(cls, content)
