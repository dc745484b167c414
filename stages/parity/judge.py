"""The verdict on a file that was measured: its gates, the checks beside them, and what verify.require demands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from conf.schema import VerifyConfig
from stages.parity import gates
from stages.parity.checks import checks_of, failures, unmet
from stages.parity.hops import Hop
from stages.parity.reference import Reference
from stages.parity.worst import (
    displaced_detections,
    extra_detections,
    flipped_detections,
    missed_detections,
    nonfinite_outputs,
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
    detections = final.facts["detections"] or {}
    values = {
        "ap50_95_drop": precision_drop(final.facts),
        "matched_fraction": detections.get("matched_fraction"),
        "extra_fraction": detections.get("extra_fraction"),
        "label_flips": detections.get("label_flips") if detections.get("reference") else None,
        "nonfinite": final.facts["nonfinite"],
    }
    why = final.facts["reasons"]
    reasons = {"ap50_95_drop": why.get("average precision", "")} | dict.fromkeys(
        ("matched_fraction", "extra_fraction", "label_flips"), why.get("detections", "")
    )
    missed, extra = missed_detections(reference, final), extra_detections(reference, final)
    worst = {
        "ap50_95_drop": missed + extra + displaced_detections(reference, final),
        "matched_fraction": missed,
        "extra_fraction": extra,
        "label_flips": flipped_detections(reference, final),
        "nonfinite": nonfinite_outputs(reference, final),
    }
    return gates.evaluate(asdict(options.gates), values, reasons, worst)


def precision_drop(facts: Mapping[str, Any]) -> float | None:
    """AP50-95 of the reference minus that of the file; None where one was not measured."""
    before, after = facts["ap50_95_fp32"], facts["ap50_95"]
    return None if before is None or after is None else before - after
