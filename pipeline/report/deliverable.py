"""The file that a run delivers, and what was judged of it: the file by emulation, the engine compiled or run."""

from __future__ import annotations

from typing import Any

from pipeline.caveats import has_failed
from pipeline.engine import engine_stage, latency_rows, was_made
from pipeline.forms import Params, Reports, names_of
from pipeline.report.headlines import evaluated
from pipeline.summary.deliverable import path_of
from truehalf.report.graph import Outline
from truehalf.report.numbers import count, number

_CHIPS = {"passed": "passed", "verified": "passed", "failed": "failed"}


def judged(reports: Reports) -> list[dict[str, str]]:
    """{what, state, word, how} of the file and of the engine; empty where verify has not run."""
    verify, engine = reports.get("verify"), reports.get("engine")
    if not verify:
        return []
    word = str(verify["verdict"])
    how = f"{evaluated(verify)}, {count(verify.get('samples'))} samples"
    rows = [{"what": "ONNX file", "state": _CHIPS.get(word, "unknown"), "word": word, "how": how}]
    if not engine:
        return [*rows, _engine("unknown", "not run", "the engine stage has not run")]
    measured = engine_stage(reports)
    state, reason = str(measured["state"]), str(measured.get("reason") or "")
    if state == "failed":
        return [*rows, _engine("failed", "failed", reason)]
    if state == "verified":
        return [*rows, _engine("passed", "verified", "built and run on this machine")]
    if "compiled" in engine:
        return [*rows, _engine("unknown", "compiled, not run", "no GPU executed it here")]
    return [*rows, _engine("unknown", "built, not verified" if was_made(engine) else "not built", reason)]


def _engine(state: str, word: str, how: str) -> dict[str, str]:
    return {"what": "Engine", "state": state, "word": word, "how": how}


def file_facts(outline: Outline | None, params: Params, reports: Reports) -> dict[str, Any] | None:
    """{facts, sha256, tensors} of the final file; None where it was not read."""
    if not outline:
        return None
    before = reports.get("slim", {}).get("model", {}).get("size_mb")
    size = f"{number(outline['mb'])} MB"
    facts = [
        ("path", _path(params, reports)),
        ("size", f"{size}; FP32 {number(before)} MB" if before else size),
        ("opset", f"{outline['opset']}, IR version {outline['ir_version']}"),
    ]
    facts += [("external data", ", ".join(outline["external"]))] if outline["external"] else []
    timed = latency_rows(engine) if (engine := reports.get("engine")) else []
    facts += [(f"latency, {row['where']}", f"p50 {number(row['p50_ms'])} ms") for row in timed]
    sides = (("input", outline["inputs"]), ("output", outline["outputs"]))
    tensors = [{"side": side, **tensor} for side, each in sides for tensor in each]
    return {"facts": facts, "sha256": outline["sha256"], "tensors": tensors}


def _path(params: Params, reports: Reports) -> str:
    """Where the file is: a run that failed delivers none."""
    made = "artifacts/cast_cleanup/model.onnx"
    if has_failed(reports, params) or not names_of(params):
        return f"{made} (kept to look at: a run that failed delivers no file)"
    return str(path_of(params))
