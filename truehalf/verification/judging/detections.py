"""Detections of a file, judged: by the gates, and by what these do not see.

gates          truehalf.verification.judging.gates
values         an output that is wrong whatever is found: new NaN or Inf, another shape
count          of a model with top-k inside: as many detections as the reference's file fixes
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from truehalf.codes import coded, uncoded
from truehalf.io_spec.outputs import DECLARE, columns_of, detecting, finds_top_k, images_and_rows, is_of_one_image
from truehalf.verification.findings import FAILED, NOT_VERIFIED, Finding
from truehalf.verification.judging import worst
from truehalf.verification.judging.gates import detection_values, evaluate
from truehalf.verification.measured import Measured
from truehalf.verification.metrics.detections import DetectionSummary
from truehalf.verification.metrics.output_errors import OutputErrors


@dataclass(frozen=True)
class Drop:
    """AP50-95 that is lost against true labels; None, and why, where it was not measured."""

    value: float | None
    why: str = ""


def judge_detections(seen: Measured, drop: Drop | None = None) -> list[Finding]:
    """What is found of the outputs that make up detections.

    Args:
        drop: None: there are no labels but the reference's detections, which are taken.
    """
    found = _gates(seen, drop)
    taking_part = {name: seen.errors[name] for name in detecting(seen.spec)}
    found += [
        Finding("detections", FAILED, errors.reason, facts={"output": name})
        for name, errors in taking_part.items()
        if is_broken(seen, errors)
    ]
    if seen.decodable:
        found += _count(seen)
    for name, errors in taking_part.items():
        if errors.nan_reference and errors.nan != errors.nan_reference:
            reason = f"output {name!r}: the reference itself holds {errors.nan_reference} NaN"
            found.append(_open(name, coded("not-finite", reason)))
        elif seen.untrained and errors.passed is not True and not is_broken(seen, errors):
            reason = f"{errors.reason}; untrained weights keep arbitrary queries"
            found.append(_open(name, coded("weights-random", reason)))
    return found


def gates_of_detections(seen: Measured) -> dict[str, float | None]:
    """The measures that gates hold, but for average precision against labels; None what was not measured."""
    values = detection_values(DetectionSummary() if seen.meaningless else seen.summary)
    return values | {"low_self_ap50_95_drop": seen.self_precision(labelled=True)["low_self_ap50_95_drop"]}


def is_broken(seen: Measured, errors: OutputErrors) -> bool:
    """Whether an output is wrong whatever is found: more new NaN or Inf than the gate allows; another shape, unless it
    is that of another number of detections from top-k inside the model (`_count`).
    """
    counted = seen.decodable and finds_top_k(seen.spec)
    other_shape = errors.passed is False and errors.max_abs is None and not counted
    return errors.nonfinite_new > seen.options.gates.nonfinite_max or other_shape


def _gates(seen: Measured, drop: Drop | None) -> list[Finding]:
    why = seen.meaningless or _nothing_found(seen)
    self_ap = drop or Drop(seen.self_precision()["self_ap50_95_drop"], why)
    values = gates_of_detections(seen) | {"ap50_95_drop": self_ap.value}
    reasons = dict.fromkeys(values, why) | {"ap50_95_drop": seen.meaningless or self_ap.why}
    ranks, rescored, displaced = worst.other_ranks, worst.rescored_detections, worst.displaced_detections
    missed, extra = worst.missed_detections, worst.extra_detections
    named = {
        "ap50_95_drop": (missed, extra, displaced),
        "low_self_ap50_95_drop": (missed, extra, ranks),
        "score_error_p99": (rescored,),
        "rank_error_p99": (ranks,),
        **dict.fromkeys(("box_error_p99", "box_shift"), (displaced,)),
        "matched_fraction": (missed,),
        "extra_fraction": (extra,),
        "label_flips": (worst.flipped_detections,),
    }

    def worst_of(name: str) -> list[worst.Worst]:
        return [item for list_them in named[name] for item in worst.ranked(list_them(seen))]

    found = evaluate(seen.options.gates, values, reasons, worst_of)
    no_node = seen.misinterpreted is not None
    found = [replace(gate, no_node=gate.state == NOT_VERIFIED and no_node) for gate in found]
    return found if drop is not None else [_renamed(gate) for gate in found]


def _nothing_found(seen: Measured) -> str:
    """Why no detections were compared, with the highest score of the reference; empty where some were."""
    if not (reason := seen.summary.get("reason")):
        return ""
    highest = max((float(found.scores.max(initial=0.0)) for found, _ in seen.found), default=0.0)
    known = f"the threshold is {seen.options.score_threshold:g}, the highest score {highest:.2g}"
    return coded("nothing-compared", f"{uncoded(reason)}; {known}")


def _renamed(gate: Finding) -> Finding:
    """A gate of average precision under the name of what was measured: the reference's detections are the labels."""
    if gate.facts["measures"] != "ap50_95_drop":
        return gate
    reason = gate.reason.replace("ap50_95_drop", "self_ap50_95_drop", 1)
    return replace(gate, reason=reason, facts=dict(gate.facts) | {"measures": "self_ap50_95_drop"})


def _count(seen: Measured) -> Iterator[Finding]:
    """As many detections as the reference's file fixes. Where the number varies from run to run, rounding may move one
    across a limit inside the model, and the gates judge it.
    """
    counts = [(len(expected.scores), len(found.scores)) for expected, found in seen.found]
    different = next((pair for pair in counts if pair[0] != pair[1]), None)
    if different is None or not finds_top_k(seen.spec) or is_of_one_image(seen.spec):
        return
    reason = f"expected {different[0]} detections an image, as the reference has, got {different[1]}"
    if any(isinstance(side, int) for output in columns_of(seen.spec).values() for side in images_and_rows(output)[1:]):
        yield Finding("detections", FAILED, coded("outputs-differ", reason))
    elif len({count for count, _ in counts}) == 1:
        reason += f"; nothing says whether the model fixes this number: {DECLARE}, with their shapes"
        yield Finding("detections", NOT_VERIFIED, coded("not-comparable", reason))


def _open(name: str, reason: str) -> Finding:
    return Finding("detections", NOT_VERIFIED, reason, facts={"output": name})
