"""What is found of a file that was measured: by gates, by the checks beside them, by what verify.require demands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from truehalf.config.verification import VerifyConfig
from truehalf.io_spec.outputs import CLASSIFICATION, DETECTIONS, detecting, plain_outputs, task_of
from truehalf.verification import gates
from truehalf.verification.chain.reference import UNTRAINED, Outputs, Reference
from truehalf.verification.chain.stage_results import StageResult
from truehalf.verification.checks import checks_of, shape_findings, unmet
from truehalf.verification.findings import Finding
from truehalf.verification.localize.worst import (
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
from truehalf.verification.metrics.plain_outputs import hidden_plain
from truehalf.verification.metrics.precision import AP50_MIN
from truehalf.verification.output_shapes import UNLIKE
from truehalf.verification.reaction import Reactions, observed, reactions


def judge(reference: Reference, final: StageResult, options: VerifyConfig) -> list[Finding]:
    """All findings on the final file; what is wrong with shapes first, as it explains the others."""
    shapes = [*final.facts["shape_faults"], *filter(None, [final.facts.get("unrounded_shapes")])]
    compared = {name: final.outputs[name] for name in final.facts["tensors"]}
    reacted = reactions_of(reference, compared, final.facts)
    if len(compared) < len(reference.outputs):
        reacted.open = reacted.open or UNLIKE
    found = shape_findings(shapes, final.facts.get("shapes_unknown"))
    found += [*gates_of(reference, final, options), *checks_of(final.facts, reacted)]
    return found + unmet(found, options.require)


def reactions_of(reference: Reference, outputs: Outputs, facts: Mapping[str, Any] | None = None) -> Reactions:
    """Whether outputs on the first samples of the reference react to the input.

    Args:
        facts: {reached: of reached_outputs, by "reference" and "file"}; None: no graph is asked.
    """
    reached = (facts["reached"]["reference"], facts["reached"]["file"]) if facts else None
    return reactions(
        observed([reference.run(outputs)], reached, detecting(reference.spec), reference.unusable == UNTRAINED)
    )


def gates_of(reference: Reference, final: StageResult, options: VerifyConfig) -> list[Finding]:
    """The gates of a file, see truehalf.verification.gates.evaluate."""
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
    if final.facts["shape_faults"] and task_of(reference.spec) == CLASSIFICATION:
        reasons["label_flips"] = UNLIKE
    limit = options.gates.tensor_error_max
    if (error := values.get("tensor_error")) is not None and error <= limit:
        hidden = hidden_plain(reference.run(final.outputs), reference.spec, limit)
        values |= {"tensor_error": None} if hidden else {}
        reasons["tensor_error"] = hidden
    return gates.evaluate(asdict(options.gates), values, reasons, worst)


def values_of(reference: Reference, facts: Mapping[str, Any]) -> dict[str, float | None]:
    """The measures that gates judge; None what was not measured. Gates of other tasks than the model's are absent."""
    task = task_of(reference.spec)
    values: dict[str, float | None] = {}
    if task == DETECTIONS:
        values = gates.detection_values(facts["detections"] or {})
        values |= {"ap50_95_drop": precision_drop(facts), "low_self_ap50_95_drop": facts["low_self_ap50_95_drop"]}
    elif task == CLASSIFICATION:
        values["label_flips"] = None if reference.unusable else (facts["classification"] or {}).get("label_flips")
    if plain_outputs(reference.spec):
        values["tensor_error"] = facts["tensor_error"]
    return values | {"nonfinite": facts["nonfinite"]}


def precision_drop(facts: Mapping[str, Any]) -> float | None:
    """AP50-95 of the reference minus that of the file; None where one was not measured, or the reference finds next to
    none of the true boxes.
    """
    found, before, after = (facts[name] for name in ("ap50_fp32", "ap50_95_fp32", "ap50_95"))
    return None if found is None or found < AP50_MIN or before is None or after is None else before - after
