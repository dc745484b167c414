"""Headline and tiles of a run's page: its verdict in a sentence, and the figures that people look for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipeline.forms import Crash, Params, Reports, Verification
from truehalf.engines.engine_report import EngineReport
from truehalf.report.numbers import count, number, percent, worded
from truehalf.report.result import WORDS, computed_by

_FOUND = {  # by a key of verify's report, and only where that is
    "matched_fraction": "{matched:,} of {reference:,} detections matched on {samples:,} images",
    "ap50_95": "AP50-95 {ap50_95:.4f} against {ap50_95_fp32:.4f}",
    "top1_agreement": "{top1_agreement:%2} of {samples:,} samples with the FP32 best class",
    "tensor_error": "outputs differ by at most {tensor_error:%2} of their largest value",
}
_TILES = (
    ("AP50-95", "{ap50_95:.4f}", "FP32 {ap50_95_fp32:.4f}"),
    ("Matched", "{matched_fraction:%2}", "{missed:,} missed, {extra:,} extra"),
    ("Best class unchanged", "{top1_agreement:%2}", "{label_flips:,} of {samples:,} samples changed"),
    ("Tensor error", "{tensor_error:%3}", "largest error, of the largest value"),
    ("Box error, p99", "{box_error_px_p99:n} px", "largest {box_error_px_max:n} px"),
    ("Score error, p99", "{score_error_p99:n}", "largest {score_error_max:n}"),
)


def headline(
    verify: Verification | None,
    crash: Crash | None,
    params: Params,
    missing: Sequence[str] = (),
    engine: EngineReport | None = None,
) -> dict[str, Any]:
    """The verdict in plain words: state (passed, failed or unknown), its word, a sentence, and reasons.

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
        return {"state": "unknown", "word": WORDS["unknown"], "sentence": sentence, "reasons": []}
    verdict, broken = verify["verdict"], []
    final = "FP16 file" if params.get("precision", {}).get("dtype") == "fp16" else "final file"
    sentence = {
        "passed": f"The {final} finds what the FP32 model finds: {found(verify)}.",
        "failed": f"The {final} does not do what the FP32 model does: {found(verify)}.",
    }.get(verdict, f"Whether the {final} does what the FP32 model does is open.")
    if engine and engine.get("status") == "failed":
        broken = list(engine.get("reasons") or [engine.get("reason", "no reason is given")])
    if verdict != "failed" and (broken or missing):
        sentence = f"{'The engine stage failed' if broken else 'What had to be verified was not'}. {sentence}"
    state = "failed" if broken or missing else verdict if verdict in ("passed", "failed") else "unknown"
    return {
        "state": state,
        "word": WORDS[state],
        "sentence": f"{sentence} The file was {evaluated(verify)}.",
        "reasons": [*broken, *missing, *verify.get("reasons", [])],
    }


def found(verify: Verification) -> str:
    """How well the final file does what the FP32 model does, in figures."""
    parts = worded((text for key, text in _FOUND.items() if verify.get(key) is not None), verify)
    if verify.get("nan") or verify.get("inf"):
        parts.append(f"{count(verify['nan'] + verify['inf'])} NaN or Inf in its outputs")
    return ", ".join(parts) or "nothing was compared"


def evaluated(verify: Verification) -> str:
    """How outputs of the final file were computed."""
    return computed_by(str(verify.get("evaluation")), str(verify.get("provider", "an unknown provider")))


def tiles(reports: Reports) -> list[dict[str, str]]:
    """The figures at the top: {name, value, note}."""
    verify = reports.get("verify", {})
    before, after = reports.get("slim", {}).get("model", {}), reports.get("cast_cleanup", {}).get("model", {})
    found = [
        {"name": name, "value": value, "note": "".join(worded([note], verify))}
        for name, text, note in _TILES
        for value in worded([text], verify)
    ]
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
