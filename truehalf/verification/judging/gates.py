"""Gates: measured values against declared limits. A gate holds, fails or was not verified; the third is no pass.

ap50_95_drop     <= ap50_95_drop_max           AP50-95 of the FP32 reference minus that of the final file
matched_fraction >= matched_fraction_min       reference detections matched
extra_fraction   <= extra_fraction_max         detections that the reference does not have: repeated or invented ones
score_error_p99                                score errors of matched detections; or of those below the score
                                               threshold, where these are worse
                                               (truehalf.verification.metrics.score_errors)
rank_error_p99                                 of scores by rank, which sees what lies below the score threshold
box_error_p99                                  corner coordinates of matched detections, as a share of the image
box_shift                                      what their corners are off on average, as chance does not explain it
low_self_ap50_95_drop                          average precision that is lost against the reference's detections,
                                               low scores included (truehalf.verification.metrics.average_precision); of
                                               all six the limit is called <name>_max
label_flips      <= label_flips_max            reference detections matched as another class: a number, no fraction;
                                               of a classifier the samples whose best class is another
tensor_rms       by tensor_rms_max             of each other output, see truehalf.verification.metrics.yardstick
nonfinite        <= nonfinite_max              NaN and Inf values in the outputs
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from truehalf.codes import coded
from truehalf.verification.findings import FAILED, NOT_VERIFIED, VERIFIED, Finding

if TYPE_CHECKING:
    from truehalf.config.verification import GatesConfig
    from truehalf.verification.judging.worst import Worst
    from truehalf.verification.metrics.detections import DetectionSummary

_OF_DETECTIONS = (
    *("low_self_ap50_95_drop", "matched_fraction", "extra_fraction", "score_error_p99"),
    # label flips: of a classifier "classes"
    *("rank_error_p99", "box_error_p99", "box_shift", "label_flips"),
)
# Each measure with the check that its gate is part of.
MEASURES = {"ap50_95_drop": "average_precision", **dict.fromkeys(_OF_DETECTIONS, "detections")}
MEASURES |= {"nonfinite": "nonfinite"}  # of tensor errors: truehalf.verification.judging.tensors
WORST = 3  # outputs that a failed gate names
_NO_VALUE = "no value was measured"


def evaluate(
    limits: GatesConfig,
    values: Mapping[str, float | None],
    reasons: Mapping[str, str] | None = None,
    worst: Callable[[str], Sequence[Worst]] | None = None,
) -> list[Finding]:
    """Hold each value against its limit.

    Args:
        limits: of all gates; those of values that are not given do not count.
        values: by what the limits' names begin with, those that the model has gates for; None: not measured.
        reasons: by value name, why it was not measured.
        worst: of the name of a value, what is worst, that first.

    Returns:
        one finding per gate, with the facts gate, measures, threshold and value; a failed one has `worst`, one without
        a value `why`.
    """
    found = []
    of_labels = "detections" if "matched_fraction" in values else "classes"
    for name, check in MEASURES.items():
        if name not in values:
            continue
        at_least = name == "matched_fraction"
        gate = f"{name}_{'min' if at_least else 'max'}"
        value, threshold = values[name], getattr(limits, gate)
        facts: dict[str, Any] = {"gate": gate, "measures": name, "threshold": threshold, "value": value}
        check = of_labels if name == "label_flips" else check
        if value is None:
            why = (reasons or {}).get(name) or _NO_VALUE
            found.append(Finding(check, NOT_VERIFIED, f"{name} was not verified: {why}", facts=facts | {"why": why}))
            continue
        # written so that NaN holds neither
        holds = bool(value >= threshold) if at_least else bool(value <= threshold)
        bound = "at least" if at_least else "at most"
        reason = f"{name} is {_number(value)}, expected {bound} {_number(threshold)}"
        if not holds:
            facts["worst"] = [asdict(item) for item in worst(name)[:WORST]] if worst else []
        failed = coded("not-finite", reason) if name == "nonfinite" else coded("beyond-gate", reason)
        found.append(Finding(check, *((VERIFIED, reason) if holds else (FAILED, failed)), facts=facts))
    return found


def detection_values(summary: DetectionSummary) -> dict[str, float | None]:
    """What gates hold of a summary of detections (truehalf.verification.metrics.detections.summarize); None: not
    measured, as all of an empty mapping. Without reference detections all that is found is extra, and nothing else is
    measured.
    """
    invented = {"extra_fraction": 1.0} if summary.get("extra") else {}
    found: Mapping[str, Any] = summary if summary.get("reference") else invented
    names = ("matched_fraction", "extra_fraction", "label_flips", "box_shift")
    spreads = ("score_error", "rank_error", "box_error")
    values = {name: found.get(name) for name in names}
    values |= {f"{name}_p99": (found.get(name) or {}).get("p99") for name in spreads}
    scores = [values["score_error_p99"], (found.get("low_score_error") or {}).get("p99")]
    return values | {"score_error_p99": max((each for each in scores if each is not None), default=None)}


def _number(value: float) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
