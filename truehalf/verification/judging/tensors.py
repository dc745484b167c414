"""Outputs that are no detections, judged: each by the yardstick (truehalf.verification.metrics.yardstick), and class
logits by their best classes, too.
"""

from __future__ import annotations

from dataclasses import asdict

from truehalf.codes import coded
from truehalf.io_spec.outputs import CLASSIFICATION
from truehalf.verification.findings import FAILED, NOT_VERIFIED, VERIFIED, Finding
from truehalf.verification.judging import worst
from truehalf.verification.judging.gates import WORST, evaluate
from truehalf.verification.measured import Measured
from truehalf.verification.metrics.output_errors import OutputErrors
from truehalf.verification.output_shapes import UNLIKE


def judge_classes(seen: Measured) -> list[Finding]:
    """The gate of label flips and the yardstick."""
    return [*class_gate(seen, seen.untrained), *judge_tensors(seen)]


def class_gate(seen: Measured, unknown: str | None = None) -> list[Finding]:
    """The gate of label flips; nothing of other models.

    Args:
        unknown: why the best classes mean nothing.
    """
    if seen.task != CLASSIFICATION:
        return []
    flips = None if unknown else (seen.classification or {}).get("label_flips")
    gates, reasons = seen.options.gates, {"label_flips": unknown or UNLIKE}
    return evaluate(gates, {"label_flips": flips}, reasons, lambda name: worst.ranked(worst.flipped_classes(seen)))


def judge_tensors(seen: Measured) -> list[Finding]:
    """A finding for each output that is no detections."""
    found = [_judged(seen, name, seen.errors[name]) for name in seen.plain]
    return [*found, *(_stayed(name) for name in seen.stayed)]


def _stayed(name: str) -> Finding:
    reason = f"output {name!r} has as many rows as there are queries, which changed places, and its rows did not"
    return Finding("tensors", NOT_VERIFIED, coded("other-order", reason), no_node=True, facts={"output": name})


def _judged(seen: Measured, name: str, errors: OutputErrors) -> Finding:
    floor = seen.options.gates.tensor_rms_max
    state = NOT_VERIFIED if errors.passed is None else VERIFIED if errors.passed else FAILED
    value = None if state == NOT_VERIFIED else float("inf") if errors.rms is None else errors.rms
    facts = {"gate": "tensor_rms_max", "measures": "tensor_rms", "threshold": floor, "value": value, "output": name}
    facts["response"] = errors.response
    if state == NOT_VERIFIED:
        facts["why"] = errors.reason
    if state == FAILED:
        facts["worst"] = [asdict(item) for item in worst.ranked(worst.worst_tensors(seen, name))[:WORST]]
    return Finding("tensors", state, errors.reason, facts=facts)
