"""Checks of a verification, each with its state: verified, failed, or not verified with the reason.

    detections         the FP32 detections matched, and no others, within the gates
    average_precision  against true labels, of which the FP32 model finds some, within the gate
    classes            of a classifier: the FP32 best class on every sample, within the gate
    tensors            other outputs, within the gate
    batch              the same at batch 1 and at opt and max of the engine's profiles
    adversarial        white, black and noisy images: finite outputs, and the same detections
    reaction           outputs change with the input where the reference's do (truehalf.verification.reaction)
    accumulation       kernels that accumulate in FP16 inside a node
    nonfinite          NaN and Inf in the outputs, within the gate
    metadata           those that contradict the reference's (truehalf.verification.contradictions); a check of files
                       that have some
    file               float types agree at each node, and ONNX Runtime loads the file as it is; a check of files with
                       FP16 (truehalf.verification.delivered)
    shapes             outputs of the reference's shapes; a check of files that have others

A failed check fails the file. Of those that are not gates, one that was not verified leaves the verdict as it is,
unless verify.require names it: then the file fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from truehalf.codes import coded, codes_in, uncoded
from truehalf.config.verification import Evaluation
from truehalf.errors import some_of
from truehalf.float16 import MAX
from truehalf.verification.findings import FAILED, NOT_VERIFIED, VERIFIED, Finding, by_check, not_checked
from truehalf.verification.open_file import FP32_CPU, Ran, is_pessimistic
from truehalf.verification.reaction import Reactions
from truehalf.verification.runs import Run
from truehalf.verification.stage_facts import StageFacts

SUMS_IN_FP32 = (
    "kernels that accumulate in FP16: emulation rounds what each node outputs and accumulates in FP32 inside a node, "
    "as tensor cores do"
)
OF_OUTPUTS = ("detections", "average_precision", "classes", "tensors")  # a model has those of what it outputs


def of_conditions(facts: StageFacts) -> list[Finding]:
    """What is found of a file at other batches, and on adversarial samples.

    Args:
        facts: {state, reason} of `batches` and `adversarial`.
    """
    batches, images = facts["batches"], facts["adversarial"]
    reason = f"adversarial images: {images['reason']}"
    return [
        Finding("batch", batches["state"], batches["reason"], decides=False),
        Finding("adversarial", images["state"], reason, decides=False),
    ]


def unmet(findings: Sequence[Finding], required: Sequence[str]) -> list[Finding]:
    """A failure for each required check that was not verified."""
    rows = by_check(findings)
    reasons = {row["check"]: row["reason"] for row in rows if row["state"] == NOT_VERIFIED}
    has = {row["check"] for row in rows}
    reasons |= {name: "the model outputs nothing of the kind" for name in OF_OUTPUTS if name not in has}
    named = {name: f"verify.require names {name}, not verified: {uncoded(reasons[name])}" for name in reasons}
    return [Finding("require", FAILED, coded("required-open", named[name])) for name in named if name in required]


def sums_not_rounded(not_split: Mapping[str, str]) -> str:
    """Which nodes a pessimistic emulation leaves out, in words; the nodes with the reason of each."""
    named = some_of((f"{node}: {why}" for node, why in not_split.items()), between="; ")
    skipped = f"sums inside {len(not_split)} FP16 nodes were not rounded ({named})"
    if _are_too_long(not_split):
        skipped = f"{skipped}; keep them FP32, or run the file (verify.evaluation=cuda)"
    return coded("sums-not-rounded", f"kernels that accumulate in FP16: {skipped}")


def _are_too_long(not_split: Mapping[str, str]) -> bool:
    """Whether one has more terms than are rounded one by one: it may stop growing long before the last, so that nothing
    is known of it.
    """
    return any(codes_in(why) for why in not_split.values())


def reaction_findings(reacted: Reactions) -> list[Finding]:
    """Whether outputs react to the input; no node is to blame for what is open."""
    failures, unknown = reacted.failures.items(), reacted.unknown.items()
    found = [Finding("reaction", FAILED, why, facts={"output": name}) for name, why in failures]
    found += [Finding("reaction", NOT_VERIFIED, why, no_node=True, facts={"output": name}) for name, why in unknown]
    found += [Finding("reaction", NOT_VERIFIED, reacted.open, decides=False)] if reacted.open else []
    return found or [Finding("reaction", VERIFIED, "the outputs change with the input")]


def tie_findings(counts: Mapping[str, int], given: int) -> list[Finding]:
    """Near ties that were taken as equal.

    Args:
        counts: of each kind of them.
        given: see Measured.
    """
    reasons = [
        f"{count} {what} differ where the FP32 model is nearly undecided: half a step of its input turns them, too"
        for what, count in counts.items()
        if count
    ]
    if given:
        reasons.append(
            f"decisions inside differ among values that are nearly equal: the FP32 model outputs the same with the "
            f"operands of the candidate ({given} tensors)"
        )
    return [not_checked(coded("near-ties", reason)) for reason in reasons]


def shape_findings(wrong: Iterable[str], unknown: str | None) -> list[Finding]:
    """Shapes of outputs, where FP16 is not rounded between nodes, too; no node is looked for.

    Args:
        unknown: why these were not looked at though FP16 arithmetic decides shapes.
    """
    found = [Finding("shapes", FAILED, reason, no_node=True) for reason in wrong]
    return found + ([Finding("shapes", NOT_VERIFIED, unknown)] if unknown else [])


def without_labels(samples: int, read_alike: str = "") -> Finding:
    """Of detections on samples without true boxes; it does not decide.

    Args:
        read_alike: what the values of boxes leave open of their format; empty: nothing.
    """
    reason = f"{samples} samples, compared with the FP32 model: accuracy against labels not measured"
    if read_alike:
        reason += f", nor whether boxes are of the declared format: {read_alike}; labels, or a look at one, tell"
    reason = coded("no-labels", reason)
    return Finding("average_precision", NOT_VERIFIED, reason, decides=False, facts={"why": reason})


def nothing_compared(runs: Sequence[Run]) -> list[Finding]:
    """Outputs of which nothing finite was compared, where no file could fail, which decides if all are so; and those
    that are 0 in the reference.
    """
    infinite, zero = [], []
    outputs = runs[0].reference if runs else {}
    for name in outputs:
        values = [np.asarray(run.reference[name]) for run in runs]
        if values[0].dtype.kind != "f" or not any(value.size for value in values):
            continue
        finite = [value[np.isfinite(value)] for value in values]
        if not any(value.size for value in finite):
            infinite.append(f"output {name!r}: the reference outputs nothing finite on these inputs")
        elif not any(value.any() for value in finite):
            zero.append(f"output {name!r}: the reference outputs nothing but 0 on these inputs")
    decides = len(infinite) == len(outputs)
    return [
        *(Finding("tensors", NOT_VERIFIED, coded("nothing-compared", why), decides=decides) for why in infinite),
        *(Finding("tensors", NOT_VERIFIED, coded("nothing-compared", why), decides=False) for why in zero),
    ]


def of_run(ran: Ran) -> list[Finding]:
    """What a run shows of kernels that accumulate in FP16, the nodes that did not run on CUDA, and inputs that float16
    does not hold.
    """
    found = [_accumulation(ran.evaluation, ran.not_split)]
    if ran.cpu_nodes:
        text = f"{len(ran.cpu_nodes)} nodes ran on the CPU provider, which computes FP16 in FP32"
        found.append(not_checked(f"{text}: {some_of(ran.cpu_nodes)}"))
    for name, value in ran.beyond_float16.items():
        beyond = f"input {name!r} holds |x| up to {value:.4g}, beyond FP16's largest, {MAX:g}"
        found.append(not_checked(f"{beyond}, and the candidate takes float16: there it is Inf", explains=True))
    return found


def _accumulation(evaluation: str, not_split: Mapping[str, str]) -> Finding:
    if not_split:
        reason = sums_not_rounded(not_split)
        if evaluation == Evaluation.emulated_fp16.value:
            reason = f"{SUMS_IN_FP32}; {reason}"
        return Finding("accumulation", NOT_VERIFIED, reason, decides=_are_too_long(not_split))
    if evaluation == Evaluation.emulated_fp16.value:
        other = "verify.evaluation=emulated-fp16-pessimistic rounds the inner sums, too"
        reason = coded("sums-not-rounded", f"{SUMS_IN_FP32}; {other}")
        return Finding("accumulation", NOT_VERIFIED, reason, decides=False)
    if is_pessimistic(evaluation):
        return Finding("accumulation", VERIFIED, "sums inside nodes are rounded to FP16, too")
    ran = evaluation != FP32_CPU
    return Finding("accumulation", VERIFIED, f"the kernels of {evaluation} ran" if ran else "the file holds no FP16")
