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

verdict: failed when a gate (or a check, truehalf.verification.checks) fails, else not verified when a gate has no
value, else passed
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

PASSED, FAILED, NOT_VERIFIED = "passed", "failed", "not verified"
WORST = 3  # outputs that a failed gate names
_NO_VALUE = "no value was measured"


def evaluate(
    limits: Mapping[str, float],
    values: Mapping[str, float | None],
    reasons: Mapping[str, str] | None = None,
    worst: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
) -> list[dict[str, Any]]:
    """Hold each value against its limit.

    Args:
        limits: of truehalf.config.schema.GatesConfig.
        values: by what the limits' names begin with, those that the model has gates for; None: not measured.
        reasons: by value name, why it was not measured.
        worst: by value name, the worst outputs first: {sample, output, error}.

    Returns:
        one {gate, measures, threshold, value, passed: True | False | None, reason} per gate; a failed one has `worst`.
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
    gates = []
    for gate, name, bound in rules:
        if name not in values:
            continue
        value, threshold = values[name], limits[gate]
        result: dict[str, Any] = {"gate": gate, "measures": name, "threshold": threshold, "value": value}
        if value is None:
            why = (reasons or {}).get(name) or _NO_VALUE
            gates.append(result | {"passed": None, "reason": f"{name} was not verified: {why}"})
            continue
        # written so that NaN holds neither
        passed = bool(value <= threshold) if bound == at_most else bool(value >= threshold)
        reason = f"{name} is {_number(value)}, expected {bound} {_number(threshold)}"
        result |= {"passed": passed, "reason": reason}
        if not passed:
            result["worst"] = [dict(item) for item in (worst or {}).get(name, [])[:WORST]]
        gates.append(result)
    return gates


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


def verdict(gates: Sequence[Mapping[str, Any]], failures: Sequence[str] = ()) -> dict[str, Any]:
    """{verdict: passed | failed | not verified, reasons: what failed, then what was not verified}.

    Args:
        failures: reasons to fail beside those of the gates.
    """
    failed = [gate["reason"] for gate in gates if gate["passed"] is False] + list(failures)
    unknown = [gate["reason"] for gate in gates if gate["passed"] is None]
    if failed:
        outcome = FAILED
    elif unknown or not gates:
        outcome = NOT_VERIFIED
    else:
        outcome = PASSED
    return {"verdict": outcome, "reasons": failed + unknown or ([] if gates else ["no gate was evaluated"])}


def left_open(judged: Mapping[str, Any], reasons: Sequence[str]) -> dict[str, Any]:
    """A verdict, given why the file that everything was made from is not verified itself."""
    outcome = NOT_VERIFIED if reasons and judged["verdict"] == PASSED else judged["verdict"]
    return dict(judged) | {"verdict": outcome, "reasons": [*judged["reasons"], *reasons]}


def detects(gates: Sequence[Mapping[str, Any]]) -> bool:
    """Whether they are those of a detector, which has a gate of its own that no other model has."""
    return any(gate["measures"] == "matched_fraction" for gate in gates)


def _number(value: float) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
