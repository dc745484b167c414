"""Gates: measured values against declared limits. A gate holds, fails or was not verified; the third is no pass.

ap50_95_drop     <= ap50_95_drop_max           AP50-95 of the FP32 reference minus that of the final file
matched_fraction >= matched_fraction_min       reference detections matched
extra_fraction   <= extra_fraction_max         detections that the reference does not have: repeated or invented ones
score_error_p99, score_error_share             score errors of matched detections
(truehalf.verification.metrics.score_errors)
rank_error_p99, rank_error_share               of scores by rank, which sees what lies below the score threshold
box_error_p99                                  corner coordinates of matched detections, as a share of the image
low_self_ap50_95_drop                          average precision that is lost against the reference's own detections,
                                               low scores included (truehalf.verification.metrics.average_precision); of
                                               all six the limit is called <name>_max
label_flips      <= label_flips_max            reference detections matched as another class: a number, no fraction;
                                               of a classifier the samples whose best class is another
tensor_error     <= tensor_error_max           of other outputs, see truehalf.verification.metrics.plain_outputs
nonfinite        <= nonfinite_max              NaN and Inf values in the outputs
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from truehalf.verification.findings import FAILED, NOT_VERIFIED, VERIFIED, Finding

CHECKS = {"ap50_95_drop": "average_precision", "tensor_error": "tensors", "nonfinite": "nonfinite"}
WORST = 3  # outputs that a failed gate names
_NO_VALUE = "no value was measured"


def evaluate(
    limits: Mapping[str, float],
    values: Mapping[str, float | None],
    reasons: Mapping[str, str] | None = None,
    worst: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
) -> list[Finding]:
    """Hold each value against its limit.

    Args:
        limits: of truehalf.config.schema.GatesConfig.
        values: by what the limits' names begin with, those that the model has gates for; None: not measured.
        reasons: by value name, why it was not measured.
        worst: by value name, the worst outputs first: {sample, output, error}.

    Returns:
        one finding per gate, with the facts gate, measures, threshold and value; a failed one has `worst`, one without
        a value `why`.
    """
    at_most = "at most"
    at_least = "at least"
    rules = (
        ("ap50_95_drop_max", "ap50_95_drop", at_most),
        ("low_self_ap50_95_drop_max", "low_self_ap50_95_drop", at_most),
        ("matched_fraction_min", "matched_fraction", at_least),
        ("extra_fraction_max", "extra_fraction", at_most),
        ("score_error_p99_max", "score_error_p99", at_most),
        ("score_error_share_max", "score_error_share", at_most),
        ("rank_error_p99_max", "rank_error_p99", at_most),
        ("rank_error_share_max", "rank_error_share", at_most),
        ("box_error_p99_max", "box_error_p99", at_most),
        ("label_flips_max", "label_flips", at_most),
        ("tensor_error_max", "tensor_error", at_most),
        ("nonfinite_max", "nonfinite", at_most),
    )
    found = []
    flips = "detections" if "matched_fraction" in values else "classes"
    for gate, name, bound in rules:
        if name not in values:
            continue
        value, threshold = values[name], limits[gate]
        facts: dict[str, Any] = {"gate": gate, "measures": name, "threshold": threshold, "value": value}
        check = CHECKS.get(name, flips if name == "label_flips" else "detections")
        if value is None:
            why = (reasons or {}).get(name) or _NO_VALUE
            found.append(Finding(check, NOT_VERIFIED, f"{name} was not verified: {why}", facts=facts | {"why": why}))
            continue
        # written so that NaN holds neither
        holds = bool(value <= threshold) if bound == at_most else bool(value >= threshold)
        reason = f"{name} is {_number(value)}, expected {bound} {_number(threshold)}"
        if not holds:
            facts["worst"] = [dict(item) for item in (worst or {}).get(name, [])[:WORST]]
        found.append(Finding(check, VERIFIED if holds else FAILED, reason, facts=facts))
    return found


def detection_values(summary: Mapping[str, Any]) -> dict[str, float | None]:
    """What gates hold of a summary of detections (truehalf.verification.metrics.detections.summarize); None: not
    measured, as all of an empty mapping, and of one without reference detections.
    """
    found = summary if summary.get("reference") else {}
    names = ("matched_fraction", "extra_fraction", "label_flips", "score_error_share", "rank_error_share")
    spreads = ("score_error", "rank_error", "box_error")
    return {name: found.get(name) for name in names} | {
        f"{name}_p99": (found.get(name) or {}).get("p99") for name in spreads
    }


def _number(value: float) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
