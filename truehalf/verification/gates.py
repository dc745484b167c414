"""Gates: measures held against declared limits. A gate holds, fails or was not verified; the third is no pass.

ap50_95_drop            AP50-95 of the FP32 reference minus that of the final file, against true labels
self_ap50_95_drop       the same where there are none: the reference's detections are the labels
low_self_ap50_95_drop   average precision that is lost against the reference's detections, low scores included
matched_fraction        reference detections matched
extra_fraction          detections that the reference does not have: repeated or invented ones
score_error_p99         score errors of matched detections; or of those below the score threshold, where these are worse
rank_error_p99          of scores by rank, which sees what lies below the score threshold
box_error_p99           corner coordinates of matched detections, as a share of the image
box_shift               what their corners are off on average, as chance does not explain it
label_flips             reference detections matched as another class, or samples whose best class is another: a number
nonfinite               NaN and Inf values where the reference is finite

The gate of other outputs, tensor_rms_max, is a floor of the yardstick (truehalf.verification.metrics.yardstick), and
those of the user's own functions stand in truehalf.verification.user_metrics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from truehalf.codes import coded
from truehalf.io_spec.outputs import CLASSIFICATION, DETECTIONS
from truehalf.verification.findings import FAILED, NOT_VERIFIED, VERIFIED, Finding

if TYPE_CHECKING:
    from truehalf.config.verification import GatesConfig
    from truehalf.verification.samples import SampleFacts

WORST = 3  # samples that a failed gate names


@dataclass(frozen=True)
class Gate:
    """A row of the table of gates.

    Attributes:
        measure: what is held.
        limit: field of GatesConfig: the smallest value that passes if it ends in "_min", else the largest.
        task: of the models that have it; empty: of all.
        check: that its finding belongs to.
        worst: column of SampleFacts by which a failed gate names samples.
        code: of a failed one.
    """

    measure: str
    limit: str
    task: str
    check: str
    worst: str
    code: str = "beyond-gate"


GATES = (
    Gate("ap50_95_drop", "ap50_95_drop_max", DETECTIONS, "average_precision", "missed"),
    Gate("self_ap50_95_drop", "ap50_95_drop_max", DETECTIONS, "average_precision", "missed"),
    Gate("low_self_ap50_95_drop", "low_self_ap50_95_drop_max", DETECTIONS, "detections", "rank_error_max"),
    Gate("matched_fraction", "matched_fraction_min", DETECTIONS, "detections", "missed"),
    Gate("extra_fraction", "extra_fraction_max", DETECTIONS, "detections", "extra"),
    Gate("score_error_p99", "score_error_p99_max", DETECTIONS, "detections", "score_error_max"),
    Gate("rank_error_p99", "rank_error_p99_max", DETECTIONS, "detections", "rank_error_max"),
    Gate("box_error_p99", "box_error_p99_max", DETECTIONS, "detections", "box_error_px_max"),
    Gate("box_shift", "box_shift_max", DETECTIONS, "detections", "box_error_px_max"),
    Gate("label_flips", "label_flips_max", DETECTIONS, "detections", "label_flips"),
    Gate("label_flips", "label_flips_max", CLASSIFICATION, "classes", "label_flips"),
    Gate("nonfinite", "nonfinite_max", "", "nonfinite", "nonfinite", code="not-finite"),
)


def evaluate(
    gates: Sequence[Gate],
    limits: GatesConfig,
    values: Mapping[str, float | None],
    reasons: Mapping[str, str] | None = None,
    samples: Sequence[SampleFacts] = (),
) -> list[Finding]:
    """Hold each value against its limit.

    Args:
        gates: those that count.
        values: by measure; None, or missing: not measured.
        reasons: by measure, why it was not measured.
        samples: of which a failed gate names the worst.

    Returns:
        one finding per gate, with the facts gate, measures, threshold and value; a failed one has `worst`, one without
        a value `why`.
    """
    found = []
    for gate in gates:
        value, threshold, name = values.get(gate.measure), getattr(limits, gate.limit), gate.measure
        facts: dict[str, Any] = {"gate": gate.limit, "measures": name, "threshold": threshold, "value": value}
        if value is None:
            why = (reasons or {}).get(name) or "no value was measured"
            reason = f"{name} was not verified: {why}"
            found.append(Finding(gate.check, NOT_VERIFIED, reason, facts=facts | {"why": why}))
            continue
        finding = held(gate.check, name, value, threshold, gate.limit.endswith("_min"), gate.code)
        if finding.state == FAILED:
            facts["worst"] = worst_by(samples, gate.worst)
        found.append(replace(finding, facts=facts))
    return found


def held(check: str, name: str, value: float, limit: float, is_least: bool, code: str = "beyond-gate") -> Finding:
    """Hold a value against its limit, the smallest that passes if `is_least`, else the largest; NaN never holds."""
    holds = bool(value >= limit) if is_least else bool(value <= limit)
    reason = f"{name} is {_number(value)}, expected {'at least' if is_least else 'at most'} {_number(limit)}"
    facts = {"gate": name, "measures": name, "threshold": limit, "value": value}
    return Finding(check, VERIFIED if holds else FAILED, reason if holds else coded(code, reason), facts=facts)


def worst_by(samples: Sequence[SampleFacts], column: str) -> list[dict[str, str]]:
    """List the WORST samples by a column: {sample, error} of each."""
    rows = sorted(samples, key=lambda row: -getattr(row, column))[:WORST]
    what = column.removesuffix("_max").replace("_", " ")
    return [
        {"sample": row.sample, "error": f"{what} {_number(getattr(row, column))}"}
        for row in rows
        if getattr(row, column)
    ]


def _number(value: float) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
