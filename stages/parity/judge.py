"""The verdict on a file that was measured: its gates, the checks beside them, and what verify.require demands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from conf.schema import VerifyConfig
from stages.parity import gates
from stages.parity.checks import checks_of, failures, unmet
from stages.parity.hops import Hop
from stages.parity.outputs import CLASSIFICATION, DETECTIONS, task_of
from stages.parity.plain_outputs import plain_outputs
from stages.parity.precision import AP50_MIN
from stages.parity.reference import Reference
from stages.parity.worst import (
    displaced_detections,
    extra_detections,
    flipped_classes,
    flipped_detections,
    missed_detections,
    nonfinite_outputs,
    other_ranks,
    rescored_detections,
    worst_tensors,
)


def judge(reference: Reference, final: Hop, options: VerifyConfig) -> dict[str, Any]:
    """The verdict on the final file: {verdict, reasons, gates, checks, worst}, `worst` by gate."""
    evaluated = gates_of(reference, final, options)
    named = {gate["gate"]: gate["worst"] for gate in evaluated if gate.get("worst")}
    checks = checks_of(evaluated, final.facts)
    more = failures(checks) + unmet(checks, options.require)
    return gates.verdict(evaluated, more) | {"gates": evaluated, "checks": checks, "worst": named}


def gates_of(reference: Reference, final: Hop, options: VerifyConfig) -> list[dict[str, Any]]:
    """The gates of a file, see stages.parity.gates.evaluate."""
    values = values_of(reference, final.facts)
    why = final.facts["reasons"]
    reasons = {"ap50_95_drop": why.get("average precision", "")} | dict.fromkeys(
        (*gates.detection_values({}), "low_self_ap50_95_drop"), reference.unusable or why.get("detections", "")
    )
    missed, extra = missed_detections(reference, final), extra_detections(reference, final)
    displaced, rescored = displaced_detections(reference, final), rescored_detections(reference, final)
    ranks = other_ranks(reference, final)
    worst = {
        "ap50_95_drop": missed + extra + displaced,
        "low_self_ap50_95_drop": missed + extra + ranks,
        "score_error_p99": rescored,
        "score_error_share": rescored,
        "rank_error_p99": ranks,
        "rank_error_share": ranks,
        "box_error_p99": displaced,
        "matched_fraction": missed,
        "extra_fraction": extra,
        "label_flips": flipped_detections(reference, final) or flipped_classes(reference, final),
        "tensor_error": worst_tensors(reference, final),
        "nonfinite": nonfinite_outputs(reference, final),
    }
    return gates.evaluate(asdict(options.gates), values, reasons, worst)


def values_of(reference: Reference, facts: Mapping[str, Any]) -> dict[str, float | None]:
    """What the gates are held against; None what was not measured. Gates of other tasks than the model's are absent."""
    task = task_of(reference.spec)
    values: dict[str, float | None] = {}
    if task == DETECTIONS:
        values = gates.detection_values(facts["detections"] or {})
        values |= {"ap50_95_drop": precision_drop(facts), "low_self_ap50_95_drop": facts["low_self_ap50_95_drop"]}
    elif task == CLASSIFICATION:
        values["label_flips"] = None if reference.unusable else facts["classification"]["label_flips"]
    if plain_outputs(reference.spec):
        values["tensor_error"] = facts["tensor_error"]
    return values | {"nonfinite": facts["nonfinite"]}


def precision_drop(facts: Mapping[str, Any]) -> float | None:
    """AP50-95 of the reference minus that of the file; None where one was not measured, or the reference finds next to
    none of the true boxes.
    """
    found, before, after = (facts[name] for name in ("ap50_fp32", "ap50_95_fp32", "ap50_95"))
    return None if found is None or found < AP50_MIN or before is None or after is None else before - after
