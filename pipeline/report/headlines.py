"""Headline and tiles of a run's page: its verdict in a sentence, and the figures that people look for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

from pipeline.forms import Params, Reports, Verification
from truehalf.engines.engine_report import EngineReport
from truehalf.report.numbers import count, number, percent

WORDS = {"passed": "Verified", "failed": "Failed", "stopped": "Stopped", "unknown": "Not verified"}


class Headline(TypedDict):
    """state: passed, failed or unknown."""

    state: str
    word: str
    sentence: str
    reasons: list[str]


def headline(
    verify: Verification | None,
    crash: Mapping[str, str] | None,
    params: Params,
    missing: Sequence[str] = (),
    engine: EngineReport | None = None,
) -> Headline:
    """The verdict in plain words.

    Args:
        missing: what had to be verified by another stage than verify, and was not.
        engine: the report of the engine stage: an engine that failed fails the run.
    """
    if crash:
        sentence = f"The run stopped in {crash['stage']}. Nothing after it belongs to this run."
        if verify:
            sentence += f" Before that, verify came to: {verify['verdict']}."
        return {"state": "failed", "word": WORDS["stopped"], "sentence": sentence, "reasons": [crash["message"]]}
    if not verify:
        sentence = "This run has not reached verify, so nothing is known about its result."
        return _headline("unknown", sentence, [])
    reasons = list(verify.get("reasons", []))
    final = "FP16 file" if params.get("precision", {}).get("dtype") == "fp16" else "final file"
    if engine and engine.get("status") == "failed" and verify["verdict"] != "failed":
        failed = list(engine.get("reasons") or [engine.get("reason", "no reason is given")])
        sentence = f"The engine stage failed. Of the {final}: {found(verify)}. {_evaluated(verify)}"
        return _headline("failed", sentence, [*failed, *missing, *reasons])
    if missing and verify["verdict"] != "failed":
        sentence = f"What had to be verified was not. Of the {final}: {found(verify)}. {_evaluated(verify)}"
        return _headline("failed", sentence, [*missing, *reasons])
    reasons += missing
    if verify["verdict"] == "passed":
        sentence = f"The {final} finds what the FP32 model finds: {found(verify)}. {_evaluated(verify)}"
        return _headline("passed", sentence, reasons)
    if verify["verdict"] == "failed":
        sentence = f"The {final} does not do what the FP32 model does: {found(verify)}. {_evaluated(verify)}"
        return _headline("failed", sentence, reasons)
    sentence = f"Whether the {final} does what the FP32 model does is open. {_evaluated(verify)}"
    return _headline("unknown", sentence, reasons)


def _headline(state: str, sentence: str, reasons: list[str]) -> Headline:
    return {"state": state, "word": WORDS[state], "sentence": sentence, "reasons": reasons}


def found(verify: Verification) -> str:
    """How well the final file does what the FP32 model does, in figures."""
    parts = []
    if verify.get("matched_fraction") is not None:
        parts.append(
            f"{count(verify['matched'])} of {count(verify['reference'])} detections matched "
            f"on {count(verify['samples'])} images"
        )
    if verify.get("ap50_95") is not None:
        parts.append(f"AP50-95 {verify['ap50_95']:.4f} against {verify['ap50_95_fp32']:.4f}")
    if verify.get("top1_agreement") is not None:
        parts.append(
            f"{percent(verify['top1_agreement'], 2)} of {count(verify['samples'])} samples with the FP32 best class"
        )
    if verify.get("tensor_error") is not None:
        parts.append(f"outputs differ by at most {percent(verify['tensor_error'], 2)} of their largest value")
    if verify.get("nan") or verify.get("inf"):
        parts.append(f"{count(verify['nan'] + verify['inf'])} NaN or Inf in its outputs")
    return ", ".join(parts) or "nothing was compared"


def _evaluated(verify: Verification) -> str:
    return {
        "emulated-fp16": "Measured with the rounding of FP16 hardware, emulated on the CPU.",
        "emulated-fp16-pessimistic": "Measured with the rounding of FP16 hardware, sums inside nodes too, emulated on "
        "the CPU.",
        "fp32-cpu": "The file holds no FP16; measured on ONNX Runtime's CPU provider.",
    }.get(str(verify.get("evaluation")), f"Measured on {verify.get('provider', 'an unknown provider')}.")


def tiles(reports: Reports) -> list[dict[str, str]]:
    """The figures at the top: {name, value, note}."""
    verify = reports.get("verify", {})
    before, after = reports.get("slim", {}).get("model", {}), reports.get("cast_cleanup", {}).get("model", {})
    found = []
    if verify.get("ap50_95") is not None:
        note = f"FP32 {verify['ap50_95_fp32']:.4f}"
        found.append({"name": "AP50-95", "value": f"{verify['ap50_95']:.4f}", "note": note})
    if verify.get("matched_fraction") is not None:
        note = f"{count(verify['missed'])} missed, {count(verify['extra'])} extra"
        found.append({"name": "Matched", "value": percent(verify["matched_fraction"], 2), "note": note})
    if verify.get("top1_agreement") is not None:
        note = f"{count(verify['label_flips'])} of {count(verify['samples'])} samples changed"
        found.append({"name": "Best class unchanged", "value": percent(verify["top1_agreement"], 2), "note": note})
    if verify.get("tensor_error") is not None:
        note = "largest error, of the largest value"
        found.append({"name": "Tensor error", "value": percent(verify["tensor_error"], 3), "note": note})
    if verify.get("box_error_px_p99") is not None:
        note = f"largest {number(verify['box_error_px_max'])} px"
        found.append({"name": "Box error, p99", "value": f"{number(verify['box_error_px_p99'])} px", "note": note})
        note = f"largest {number(verify['score_error_max'])}"
        found.append({"name": "Score error, p99", "value": number(verify["score_error_p99"]), "note": note})
    if after.get("fp16_fraction") is not None:
        note = f"{count(after['casts'])} casts in {count(after['nodes'])} nodes"
        fp16 = reports.get("fp16", {})
        if fp16.get("fp16_arithmetic"):
            note = f"{percent(fp16['fp16_arithmetic'])} of the arithmetic; {note}"
            if "costs" in fp16:  # of a conversion; a trace places nothing
                placed, naive = (count(fp16["costs"][name]["casts"]) for name in ("placed", "naive"))
                note += f"; {placed} placed by the conversion, {naive} if placed naively"
        found.append({"name": "Nodes in FP16", "value": percent(after["fp16_fraction"]), "note": note})
    if after.get("size_mb") is not None:
        note = f"before {number(before['size_mb'])} MB" if "size_mb" in before else ""
        found.append({"name": "Model file", "value": f"{number(after['size_mb'])} MB", "note": note})
    return found
