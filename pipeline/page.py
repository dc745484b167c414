"""Page of a run, reports/report.html: the contents of the sections that truehalf/report/page.py draws.

A part that the run does not have is None or empty, and its section is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import yaml

from pipeline.deliver import path_of
from pipeline.diff import differing_figures, differing_options
from pipeline.figures import FIGURES, accuracy_sentence, low_precision_note, value_of
from pipeline.run_record import FAILED, FINAL, PASSED, STAGES, Run
from truehalf.engines.engine_report import EngineReport
from truehalf.errors import some_of
from truehalf.files import write_text
from truehalf.report.engine import clocks_text, engine_sentence, fact_rows, layer_rows, point_text
from truehalf.report.fp32_nodes import kept_in_fp32
from truehalf.report.numbers import count, number
from truehalf.report.page import Details, page, verification_sections
from truehalf.report.result import WORDS
from truehalf.report.text import computed_by

_STAGE_WORK = {
    "trace": "PyTorch to ONNX",
    "slim": "onnxslim and repairs",
    "calibrate": "ranges of every tensor",
    "fp16": "FP32 to FP16",
    "cast_cleanup": "the final file",
    "reference": "FP32 model, and both FP32 files against it",
    "verify": "the FP16 files against it",
    "engine": "TensorRT, or ONNX Runtime",
}
_PURPOSES = {"trace": "to trace on", "calibration": "to calibrate with", "verification": "to verify with"}
_RESIZED = {"stretch": "stretched", "letterbox": "letterboxed"}
_STATES = {"passed": "passed", "verified": "passed", "failed": "failed"}  # colours of words; others are "unknown"
_FILES_NAMED = 3
# Tiles at the top: a figure, and the figures named in small below it.
_TILES = (
    ("ap", ("ap_fp32",)),
    ("matched", ("missed", "extra")),
    ("same_class", ("label_flips",)),
    ("tensor_rms", ()),
    ("box_p99", ("box_max",)),
    ("score_p99", ("score_max",)),
    ("fp16", ("fp16_nodes", "casts", "casts_naive")),
    ("mb", ("mb_fp32",)),
)


def draw(run: Run, previous: Run | None) -> Path:
    """Write the page of a run; return its path."""
    write_text(run.page, page(content(run, previous)))
    return run.page


def content(run: Run, previous: Run | None = None) -> dict[str, Any]:
    """Contents of the page by section.

    Args:
        previous: an earlier run of the same model, to show the difference to.
    """
    trace, verify = run.reports.trace, run.reports.verify
    baked = trace.baked if trace else None
    nodes = run.outline["nodes"] if run.outline else []
    stage_rows = _measured_rows(run)
    return {
        "title": run.title,
        "headline": headline(run),
        "judged": judged(run),
        "file": _file(run),
        "tiles": tiles(run),
        "not_verified": run.not_verified,
        "warnings": [*run.warnings, *filter(None, [low_precision_note(run)])],
        "decided": [f"{place} (in a package)" for place in (baked.installed if baked else [])],
        "compared": list(baked.inputs) if baked else [],
        "stages": [_stage_row(run, stage) for stage in STAGES],
        "machine": _machine(run),
        "stage_rows": stage_rows,
        "classifies": any(row.get("top1_agreement") is not None for row in stage_rows),
        "outputs": sorted({name for row in stage_rows for name in row.get("max_abs_error", {})}),
        **verification_sections(run.verdict_file, cast("Details", run.details), run.folder / "artifacts" / "verify"),
        "decisions": kept_in_fp32(run.decisions, nodes) if run.decisions is not None else None,
        "engine": _engine(run),
        "previous": _difference(previous, run) if previous and verify and not run.crash else None,
        "data": _data(run),
        "params": yaml.safe_dump(run.params, sort_keys=False, allow_unicode=True) if run.params else None,
    }


# --- verdict ----------------------------------------------------------------------------------------------------------


def headline(run: Run) -> dict[str, Any]:
    """{state: "passed" | "failed" | "unknown", word, sentence, reasons}."""
    verify = run.reports.verify
    if run.crash:
        sentence = f"The run stopped in the stage {run.crash.stage}; the stages after it did not run."
        sentence += f" Before that, verify came to: {verify.verdict}." if verify else ""
        return {"state": "failed", "word": WORDS["stopped"], "sentence": sentence, "reasons": run.reasons}
    if verify is None:
        sentence = "This run has not reached verify, so nothing is known about its result."
        return {"state": "unknown", "word": WORDS["unknown"], "sentence": sentence, "reasons": []}
    final = "FP16 file" if run.params.get("precision", {}).get("dtype") == "fp16" else "final file"
    sentence = {
        PASSED: f"The {final} finds what the FP32 model finds: {accuracy_sentence(run)}.",
        FAILED: f"The {final} does not do what the FP32 model does: {accuracy_sentence(run)}.",
    }.get(verify.verdict, f"Whether the {final} does what the FP32 model does is open.")
    if run.has_failed and verify.verdict != FAILED:
        failed = "The engine failed" if run.engine_state[0] == FAILED else "A part that had to be verified was not"
        sentence = f"{failed}. {sentence}"
    state = _STATES.get(run.verdict, "unknown")
    how = computed_by(verify.evaluation, verify.provider)
    return {"state": state, "word": WORDS[state], "sentence": f"{sentence} It was {how}.", "reasons": run.reasons}


def judged(run: Run) -> list[dict[str, str]]:
    """{what, state, word, how} of the file, and of the engine; [] where verify has not run."""
    verify, engine = run.reports.verify, run.reports.engine
    if verify is None:
        return []
    how = f"{computed_by(verify.evaluation, verify.provider)}, {count(verify.samples)} samples"
    rows = [("ONNX file", verify.verdict, how)]
    state, reason = run.engine_state
    if engine is None:
        rows.append(("Engine", "not run", "the engine stage has not run"))
    elif state == FAILED:
        rows.append(("Engine", FAILED, reason))
    elif state == "verified":
        rows.append(("Engine", "verified", "built and run on this machine"))
    elif engine.is_made and engine.parity is None:
        rows.append(("Engine", "compiled, not run", "no GPU executed it here"))
    else:
        rows.append(("Engine", "built, not verified" if engine.is_made else "not built", reason))
    return [{"what": what, "state": _STATES.get(word, "unknown"), "word": word, "how": how} for what, word, how in rows]


# --- file and figures -------------------------------------------------------------------------------------------------


def _file(run: Run) -> dict[str, Any] | None:
    """{facts, sha256, tensors} of the final file; None where verify has not read it."""
    outline = run.outline
    if outline is None:
        return None
    before, size = run.model_facts("slim").get("size_mb"), f"{number(outline['mb'])} MB"
    undelivered = f"{FINAL} (kept to look at: a run that failed delivers no file)"
    facts = [
        ("path", undelivered if run.has_failed or not run.names else str(path_of(run))),
        ("size", f"{size}; FP32 {number(before)} MB" if before else size),
        ("opset", f"{outline['opset']}, IR version {outline['ir_version']}"),
    ]
    facts += [("external data", ", ".join(outline["external"]))] if outline["external"] else []
    engine = run.reports.engine
    latency = engine.latency if engine else []
    facts += [(f"latency, {point_text(row)}", f"p50 {number(row['p50_ms'])} ms") for row in latency]
    tensors = [{"side": side, **tensor} for side in ("input", "output") for tensor in outline[f"{side}s"]]
    return {"facts": facts, "sha256": outline["sha256"], "tensors": tensors}


def tiles(run: Run) -> list[dict[str, str]]:
    """{name, value, note} of the figures at the top that the run has."""
    figures = {figure.key: figure for figure in FIGURES}
    rows = []
    for key, noted in _TILES:
        value = value_of(run, figures[key])
        if value is None:
            continue
        below = [(figures[name], value_of(run, figures[name])) for name in noted]
        note = "; ".join(f"{figure.label} {figure.shown(small)}" for figure, small in below if small is not None)
        rows.append({"name": figures[key].label, "value": figures[key].shown(value), "note": note})
    return rows


def _measured_rows(run: Run) -> list[dict[str, Any]]:
    """Rows of the table of files that were measured, and of the engine."""
    verify, engine = run.reports.verify, run.reports.engine
    if verify is None:
        return []
    state, reason = run.engine_state
    measured = engine.parity if engine and "matched_fraction" in (engine.parity or {}) else None
    rows = [{"name": name, **numbers} for name, numbers in verify.stages.items() if name != "engine"]
    return [*rows, {**(measured or {}), "name": "engine", "state": state, "reason": reason}]


def _difference(previous: Run, run: Run) -> dict[str, Any]:
    """{options, figures} that differ from an earlier run, each {name, before, now}."""
    keys = ("name", "before", "now")
    return {
        "options": [dict(zip(keys, row, strict=True)) for row in differing_options(previous, run)],
        "figures": [dict(zip(keys, row, strict=True)) for row in differing_figures(previous, run)],
    }


# --- engine, stages, data ---------------------------------------------------------------------------------------------


def _engine(run: Run) -> dict[str, Any]:
    engine = run.reports.engine or EngineReport()
    sentence = engine_sentence(engine) if run.reports.engine else "the engine stage has not run: no engine was built"
    plan: Mapping[str, Any] = engine.plan or {}
    commands = [("TensorRT 11", plan.get("trtexec")), ("TensorRT 10", plan.get("trtexec_10"))]
    delivered = f"--onnx={FINAL.name if run.has_failed else path_of(run).name}"
    return {
        "by_hand": [
            (name, line.replace(f"--onnx={FINAL.name}", delivered).replace(" --", " \\\n  --"))
            for name, line in commands
            if line and engine.parity is None
        ],
        "sentence": f"{sentence[:1].upper()}{sentence[1:]}.",
        "facts": fact_rows(engine),
        "latency": [
            {**row, "where": point_text(row), "clocks": clocks_text(row.get("clocks"))} for row in engine.latency
        ],
        "layers": layer_rows(engine),
        "warnings": engine.warnings,
        "findings": engine.lint,
    }


def _stage_row(run: Run, stage: str) -> dict[str, Any]:
    row: dict[str, Any] = {"stage": stage, "work": _STAGE_WORK[stage], "seconds": None, "model": {}, "reason": ""}
    row["parity"] = _parity(run, stage)
    if run.crash and run.crash.stage == stage:
        return row | {"status": FAILED, "reason": run.crash.message}
    facts = run.stages.get(stage)
    if facts is None:
        return row | {"status": "not run"}
    return row | {"status": facts.status, "reason": facts.reason, "seconds": facts.seconds, "model": facts.model}


def _parity(run: Run, stage: str) -> str:
    """Result of comparing the file of a stage: with torch (trace), its source (slim), or the reference."""
    verify, engine = run.reports.verify, run.reports.engine
    if stage not in run.stages:
        return ""
    if stage == "cast_cleanup":
        return verify.verdict if verify else "not verified"
    if stage == "fp16":
        measured: Mapping[str, Any] = verify.stages.get("fp16", {}) if verify else {}
        for key, text in (("matched_fraction", "matched"), ("top1_agreement", "same class")):
            if measured.get(key) is not None:
                return f"{100 * measured[key]:.2f} % {text}"
        return "not verified"
    if stage == "engine":
        return run.engine_state[0] if engine and engine.is_made else ""
    return str((run.json[stage].get("parity") or {}).get("status", ""))


def _machine(run: Run) -> str:
    machine: Mapping[str, Any] = run.reports.inputs.machine if run.reports.inputs else {}
    if not machine:
        return ""
    gpus = ", ".join(gpu["name"] for gpu in machine.get("gpus") or []) or "no GPU"
    versions = [f"{name} {version}" for name in ("tensorrt", "onnxruntime") if (version := machine.get(name))]
    return f"This machine: {', '.join([gpus, *versions])}."


def _data(run: Run) -> dict[str, Any] | None:
    """Samples by purpose with their files and digests, and the preprocessing; None where inputs has not run."""
    inputs = run.reports.inputs
    if inputs is None:
        return None
    samples = {purpose: getattr(inputs, purpose) for purpose in _PURPOSES if getattr(inputs, purpose)}
    images = [each for each in (run.spec or {}).get("inputs", []) if each.get("kind") == "images"]
    return {
        "source": inputs.data.get("source", ""),
        "rows": [_sample_row(_PURPOSES[purpose], each) for purpose, each in samples.items()],
        "left_out": [
            {"reason": reason, "count": len(names), "names": some_of(names, _FILES_NAMED)}
            for reason, names in inputs.data.get("left_out", {}).items()
        ],
        "preprocessing": [{"input": each["name"], "steps": _preprocessing_text(each)} for each in images],
    }


def _sample_row(purpose: str, samples: Mapping[str, Any]) -> dict[str, Any]:
    files, labels, code = samples.get("files", []), samples.get("annotations"), samples.get("code")
    names = some_of((each["file"] for each in files), _FILES_NAMED) or ("" if code else "generated, not from files")
    if labels:
        names += f"; labels from {labels['file']} ({labels['sha256'][:12]})"
    if code:
        names = f"made by {code['function']} ({code['sha256'][:12]}); the digest is of all samples"
    return {
        "purpose": purpose,
        "samples": samples.get("samples"),
        "files": len(files) or None,
        "sha256": str(samples.get("sha256", ""))[:12] if files or code else "–",
        "names": names,
    }


def _preprocessing_text(entry: Mapping[str, Any]) -> str:
    """Steps from an image to an input of kind images, such as "640 × 640 pixels; letterboxed; RGB; 0 to 1; NCHW"."""
    height, width = entry.get("size") or entry["shape"][2:4]
    low, high = entry.get("range") or (0, 1)
    steps = [f"{height} × {width} pixels", _RESIZED.get(str(entry.get("resize")), str(entry.get("resize")))]
    steps += [str(entry["resample"])] if entry.get("resample") else []
    steps += [str(entry.get("channels")), f"{low} to {high}", str(entry.get("layout"))]
    if normalization := entry.get("normalization"):
        mean, std = (", ".join(f"{value:g}" for value in normalization[key]) for key in ("mean", "std"))
        steps.append(f"mean {mean}, std {std} {normalization.get('where', '')}".rstrip())
    return "; ".join(steps)
