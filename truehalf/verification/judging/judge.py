"""A measured file, judged: one strategy for each task that the I/O spec declares, and what holds of all.

    detections        truehalf.verification.judging.detections; other outputs as tensors
    classification    label flips, and tensors
    tensors           truehalf.verification.judging.tensors

    all               NaN and Inf, and user-defined metrics (truehalf.verification.judging.user_metrics)

Each takes a Measured, which knows the gates, and returns findings; verdicts and lists follow from these
(truehalf.verification.findings).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from truehalf.codes import coded, uncoded
from truehalf.config.verification import GatesConfig
from truehalf.io_spec.outputs import CLASSIFICATION, DETECTIONS, detecting
from truehalf.verification.findings import FAILED, NOT_VERIFIED, PASSED, VERIFIED, Finding, verdict_of, worst_of
from truehalf.verification.judging import worst
from truehalf.verification.judging.checks import (
    nothing_compared,
    of_run,
    tie_findings,
    without_labels,
)
from truehalf.verification.judging.detections import Drop, gates_of_detections, is_broken, judge_detections
from truehalf.verification.judging.gates import detection_values, evaluate
from truehalf.verification.judging.tensors import class_gate, judge_classes, judge_tensors
from truehalf.verification.judging.user_metrics import judge_metrics
from truehalf.verification.measured import Measured
from truehalf.verification.metrics.detections import Matching, summarize
from truehalf.verification.metrics.output_errors import OutputErrors
from truehalf.verification.open_file import Ran
from truehalf.verification.output_shapes import UNLIKE, comparable
from truehalf.verification.reaction import observed, reactions
from truehalf.verification.stage_numbers import SameOutputs


def findings_on(
    seen: Measured,
    ran: Ran,
    shapes: Sequence[Finding],
    drop: Drop | None = None,
) -> list[Finding]:
    """All that is found of the outputs of a file, of how it ran, and of the shapes, which come first: they explain the
    others.

    Args:
        shapes: see truehalf.verification.judging.checks.shape_findings.
        drop: see `judge`.
    """
    return [*shapes, *judge(seen, drop), *judge_reactions(seen), *of_run(ran)]


def judge(seen: Measured, drop: Drop | None = None) -> list[Finding]:
    """What is found of the outputs, but for whether they react to the input.

    Args:
        drop: of average precision against true labels; None: there are none, and it is taken against the reference's
            detections.
    """
    found: list[Finding] = []
    if seen.task == DETECTIONS:
        found += judge_detections(seen, drop)
        found += [] if drop else [without_labels(sum(max(run.rows, 1) for run in seen.runs), seen.read_alike)]
    found += judge_classes(seen) if seen.task == CLASSIFICATION else judge_tensors(seen)
    nonfinite = sum(errors.nonfinite_new for errors in seen.errors.values())
    gates = seen.options.gates
    found += evaluate(gates, {"nonfinite": nonfinite}, {}, lambda name: worst.ranked(worst.nonfinite_outputs(seen)))
    found += judge_metrics(seen.runs, seen.options.metrics)
    classes = (seen.classification or {}).get("near_ties", 0)
    found += tie_findings({"best classes": classes, "classes of detections": seen.tied_labels}, seen.given)
    found += nothing_compared(seen.runs)
    return sorted(found, key=lambda finding: "gate" not in finding.facts)


def is_beyond(seen: Measured) -> bool:
    """Whether an output that is judged by itself does not pass, or a gate of detections fails; not where there are new
    NaN or Inf, which no other decision explains.
    """
    if any(errors.nonfinite_new for errors in seen.errors.values()):
        return False
    gates: dict[str, float | None] = {}
    if seen.task == DETECTIONS and not seen.meaningless:
        gates = {"ap50_95_drop": seen.self_precision()["self_ap50_95_drop"], **gates_of_detections(seen)}
    return seen.plain_differ or any(gate.state == FAILED for gate in evaluate(seen.options.gates, gates))


def judged_outputs(seen: Measured, found: Sequence[Finding]) -> dict[str, OutputErrors]:
    """Errors by output with what follows from the findings on it; one that takes part in detections passes when they
    do.
    """
    of_detections = [one for one in found if one.check in ("detections", "average_precision", "nonfinite")]
    good = {FAILED: False, NOT_VERIFIED: None, PASSED: True}[verdict_of(of_detections)]
    outputs = {}
    for name, errors in seen.errors.items():
        open_ = (one for one in found if one.facts.get("output") == name and one.state != VERIFIED and one.decides)
        first = next(open_, None)
        passed = True if first is None else False if first.state == FAILED else None
        reason = first.reason if first else errors.reason
        if name in detecting(seen.spec) and not seen.untrained and not good:
            because = "it is judged as detections, and these did not pass"
            passed, reason = good, errors.reason if is_broken(seen, errors) else because
        outputs[name] = replace(errors, passed=passed, reason=reason)
    return outputs


def judge_reactions(seen: Measured) -> list[Finding]:
    """Whether outputs that can be compared react to the input."""
    taking = detecting(seen.spec)
    alike = set.intersection(*({*comparable(run.reference, run.candidate)} for run in seen.runs))
    names = [name for name in seen.errors if name in alike or (seen.decodable and name in taking)]
    found = reactions(observed(seen.runs, names, taking, seen.untrained is not None))
    if len(names) < len(seen.errors) and all(each.state == VERIFIED for each in found):
        return [Finding("reaction", NOT_VERIFIED, UNLIKE, decides=False)]
    return found


def same_outputs(seen: Measured) -> SameOutputs:
    """Whether the outputs are the same, within the gates: state and reason of the first kind that is not, else of the
    last; those of a detector first that are no detections.
    """
    plain = _same_plain(seen) if seen.plain else None
    if plain is not None and (plain["state"] == FAILED or seen.task != DETECTIONS):
        return plain
    if seen.untrained:
        return {"state": NOT_VERIFIED, "reason": seen.untrained}
    same = same_detections(seen.matchings, seen.options.gates)
    return plain if plain is not None and plain["state"] == NOT_VERIFIED and same["state"] == VERIFIED else same


def same_detections(matchings: Sequence[Matching], limits: GatesConfig) -> SameOutputs:
    """Whether a run finds what another finds; where the other finds nothing, this one may find nothing, either."""
    facts = summarize(matchings)
    measured: SameOutputs = {
        "matched_fraction": facts["matched_fraction"],
        "extra": facts["extra"],
        "reference": facts["reference"],
    }
    gates = evaluate(limits, detection_values(facts))
    failed = [uncoded(gate.reason) for gate in gates if gate.state == FAILED]
    summary = f"{facts['matched']} of {facts['reference']} detections are matched, {facts['extra']} are extra"
    if not failed:
        return {"state": VERIFIED, "reason": summary, **measured}
    return {"state": FAILED, "reason": coded("beyond-gate", "; ".join([summary, *failed])), **measured}


def _same_plain(seen: Measured) -> SameOutputs:
    found = [*class_gate(seen), *judge_tensors(seen)]
    error, classes = seen.largest_rms or 0.0, seen.classification
    summary = f"the outputs differ by {error:.2%} (rms)"
    summary += f", {classes['label_flips']} of {classes['samples']} best classes" if classes else ""
    state = worst_of(finding.state for finding in found)
    unverified = next((finding.reason for finding in found if finding.state == NOT_VERIFIED == state), "")
    summary = coded("outputs-differ", summary) if state == FAILED else summary
    return {"state": state, "reason": unverified or summary, "tensor_rms": error}
