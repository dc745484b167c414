"""What a verification looked at, each with its state: verified, failed, or not verified with the reason.

    detections         the FP32 detections matched, and no others, within the gates
    average_precision  against true labels, of which the FP32 model finds some, within the gate
    classes            of a classifier: the FP32 best class on every sample, within the gate
    tensors            other outputs, within the gate
    batch              the same at batch 1 and at opt and max of the engine's profiles
    adversarial        white, black and noisy images: finite outputs, and the same detections
    reaction           outputs change with the input where the reference's do (truehalf.verification.reaction)
    accumulation       kernels that accumulate in FP16 inside a node

A failed check fails the verdict. One that was not verified leaves it as it is, unless verify.require names it: then
it fails the verdict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from truehalf.codes import coded
from truehalf.config.schema import Evaluation, GatesConfig
from truehalf.verification.gates import detection_values, detects, evaluate
from truehalf.verification.metrics.detections import Matching, summarize
from truehalf.verification.reaction import Reactions

VERIFIED, FAILED, NOT_VERIFIED = "verified", "failed", "not verified"
NAMED = 10  # nodes of a sentence; details.json has all
_GATES = {
    "detections": (*detection_values({}), "low_self_ap50_95_drop"),
    "average_precision": ("ap50_95_drop",),
    "classes": ("label_flips",),
    "tensors": ("tensor_error",),
}


def checks_of(gates: Sequence[Mapping[str, Any]], facts: Mapping[str, Any], reacted: Reactions) -> list[dict[str, Any]]:
    """The checks of a final file, each {check, state, reason}.

    Args:
        gates: see truehalf.verification.gates.evaluate.
        facts: of the final stage: evaluation, not_split, and {state, reason} of `batches` and `adversarial`.
        reacted: whether its outputs react to the input.
    """
    by_check = {name: [gate for gate in gates if gate["measures"] in what] for name, what in _GATES.items()}
    by_check.pop("classes" if detects(gates) else "detections")  # both have label flips
    rows = [_by_gates(name, found) for name, found in by_check.items() if found]
    for name, key in (("batch", "batches"), ("adversarial", "adversarial")):
        rows.append({"check": name, "state": facts[key]["state"], "reason": facts[key]["reason"]})
    rows.append({"check": "reaction"} | _reaction(reacted))
    return [*rows, {"check": "accumulation"} | _accumulation(facts["evaluation"], facts["not_split"])]


def failures(checks: Sequence[Mapping[str, Any]]) -> list[str]:
    """A sentence for each failed check that is no gate: those speak for themselves."""
    return [f"{c['check']}: {c['reason']}" for c in checks if c["state"] == FAILED and c["check"] not in _GATES]


def unmet(checks: Sequence[Mapping[str, Any]], required: Sequence[str]) -> list[str]:
    """A sentence for each required check that was not verified."""
    reasons = {check["check"]: check["reason"] for check in checks if check["state"] == NOT_VERIFIED}
    has = {check["check"] for check in checks}
    reasons |= {name: "the model outputs nothing of the kind" for name in _GATES if name not in has}
    return [
        f"verify.require names {name}, and it was not verified: {reason}"
        for name, reason in reasons.items()
        if name in required
    ]


def same_detections(matchings: Sequence[Matching], limits: GatesConfig) -> dict[str, Any]:
    """Whether a run finds what another finds, within the gates: {state, reason, matched_fraction, extra}.

    Where the other finds nothing, this one may find nothing, either.
    """
    facts = summarize(matchings)
    row = {"matched_fraction": facts["matched_fraction"], "extra": facts["extra"], "reference": facts["reference"]}
    if not facts["reference"]:
        if facts["extra"]:
            return row | {"state": FAILED, "reason": f"{facts['extra']} detections appear where there was none"}
        return row | {"state": VERIFIED, "reason": "no detection before, and none now"}
    failed = [gate["reason"] for gate in evaluate(asdict(limits), detection_values(facts)) if gate["passed"] is False]
    said = f"{facts['matched']} of {facts['reference']} detections are matched, {facts['extra']} are extra"
    return row | {"state": FAILED if failed else VERIFIED, "reason": "; ".join([said, *failed])}


def _by_gates(name: str, gates: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Failed when one of the gates fails, else not verified when one has no value."""
    for state, passed in ((FAILED, False), (NOT_VERIFIED, None)):
        if reasons := [gate["reason"] for gate in gates if gate["passed"] is passed]:
            prefix = f"{gates[0]['measures']} was not verified: "
            return {"check": name, "state": state, "reason": reasons[0].removeprefix(prefix)}
    return {"check": name, "state": VERIFIED, "reason": "; ".join(gate["reason"] for gate in gates)}


def sums_not_rounded(not_split: Mapping[str, str]) -> str:
    """Which nodes a pessimistic emulation leaves out, in words; the nodes with the reason of each."""
    named = "; ".join(f"{node}: {why}" for node, why in list(not_split.items())[:NAMED])
    more = f"; and {len(not_split) - NAMED} more" if len(not_split) > NAMED else ""
    said = f"kernels that accumulate in FP16: sums inside {len(not_split)} FP16 nodes were not rounded ({named}{more})"
    return coded("sums-not-rounded", said)


def _reaction(reacted: Reactions) -> dict[str, Any]:
    if reacted.failures:
        return {"state": FAILED, "reason": "; ".join(reacted.failures.values())}
    if unknown := [*reacted.unknown.values(), *filter(None, [reacted.open])]:
        return {"state": NOT_VERIFIED, "reason": "; ".join(unknown)}
    return {"state": VERIFIED, "reason": "the outputs change with the input"}


def _accumulation(evaluation: str, not_split: Mapping[str, str]) -> dict[str, Any]:
    if not_split:
        return {"state": NOT_VERIFIED, "reason": sums_not_rounded(not_split)}
    if evaluation == Evaluation.emulated_fp16.value:
        reason = coded(
            "sums-not-rounded",
            "kernels that accumulate in FP16: emulation rounds what each node outputs and accumulates in FP32 inside "
            "a node, as tensor cores do; verify.evaluation=emulated-fp16-pessimistic rounds the inner sums, too",
        )
        return {"state": NOT_VERIFIED, "reason": reason}
    said = {
        Evaluation.emulated_fp16_pessimistic.value: "sums inside nodes are rounded to FP16, too",
        Evaluation.cuda.value: "the kernels of ONNX Runtime's CUDA provider ran",
    }
    return {"state": VERIFIED, "reason": said.get(evaluation, "the file holds no FP16")}
