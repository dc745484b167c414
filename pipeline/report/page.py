"""The page of a run: everything that it found (truehalf.report.page), reports/report.html.

    python -m pipeline.report

Reads params.yaml, reports/*.json and the verdict, images and decisions under artifacts/. What is missing is shown as
missing: a run that crashed half-way still gets its page.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import yaml
from markupsafe import Markup

from pipeline.caveats import decided, not_verified, parity, unmet, warnings
from pipeline.engine import engine_sentence, engine_stage, fact_rows, latency_rows, layer_rows, was_made
from pipeline.forms import Crash, Params, Reports, StageReport, Verification, model_of, names_of, of_stage
from pipeline.report.data import data_of
from pipeline.report.deliverable import file_facts, judged
from pipeline.report.headlines import headline, tiles
from pipeline.report.previous import difference, remember
from pipeline.workspace import STAGES, crash_of, json_of, reports_of_run, root
from truehalf.config.params import read_params
from truehalf.engines.engine_report import EnginePlan, EngineReport
from truehalf.errors import StageError
from truehalf.files import write_text
from truehalf.report.drawings import Histogram, histogram
from truehalf.report.fp32_nodes import kept_in_fp32
from truehalf.report.graph import Outline
from truehalf.report.page import Details, page, verification_sections
from truehalf.report.svg import ORANGE
from truehalf.runtime.machine import Machine

_STAGE_WORK = {
    "trace": "PyTorch to ONNX",
    "slim": "onnxslim",
    "calibrate": "ranges of every tensor",
    "fp16": "FP32 to FP16",
    "cast_cleanup": "the final file",
    "reference": "FP32 torch, for all files",
    "verify_fp32": "trace and slim against that reference",
    "verify": "the FP16 files against it",
    "engine": "TensorRT, or ONNX Runtime",
}


def main() -> None:
    folder = root()
    print(f"report: {draw(folder).relative_to(folder)}")


def draw(folder: Path) -> Path:
    """Write the page of a workspace; its path.

    It is no out of DVC's, as it shows the difference to the run before: `pipeline.track` draws it in every run.
    """
    place, params = folder / "reports" / "report.html", _params(folder)
    reports, crash = _reports(folder)
    if not crash:
        remember(folder, params, reports)
    write_text(place, render(folder))
    return place


def render(folder: Path) -> str:
    """The page of the run in a workspace, whatever of it is there."""
    return page(content(folder))


def content(folder: Path) -> dict[str, object]:
    """What the page shows; a part that the run does not have is None or empty."""
    reports, crash = _reports(folder)
    params = _params(folder)
    verify, engine = reports.get("verify"), reports.get("engine")
    verdict_folder = folder / "artifacts" / "verify"
    verdict = (json_of(verdict_folder / "verdict.json") if verify else None) or {}
    details = cast("Details", (json_of(verdict_folder / "details.json") if verify else None) or {})
    outline: Outline | None = json_of(verdict_folder / "graph.json") if verify else None
    nodes = outline["nodes"] if outline else []
    spec = json_of(folder / "artifacts" / "trace" / "io_spec.json")
    rows = json_of(folder / "artifacts" / "fp16" / "decisions.json") if "fp16" in reports else None
    return {
        "title": " · ".join(names_of(params)) or "truehalf",
        "headline": headline(verify, crash, params, unmet(params, reports), engine),
        "judged": judged(reports),
        "file": file_facts(outline, params, reports),
        "tiles": tiles(reports),
        "not_verified": not_verified(reports),
        "warnings": warnings(reports),
        "decided": decided(reports),
        "compared": reports.get("trace", {}).get("baked", {}).get("inputs", []),
        "stages": [
            _stage_row(stage, of_stage(reports, stage), crash) | {"parity": parity(stage, reports)} for stage in STAGES
        ],
        "machine": _machine(reports.get("probe")),
        "stage_rows": (stage_rows := _stage_rows(verify, reports)),
        "classifies": any(row.get("top1_agreement") is not None for row in stage_rows),
        "outputs": sorted({name for row in stage_rows for name in row.get("max_abs_error", {})}),
        **verification_sections(verdict, details, verdict_folder, nodes),
        "plots": _plots(reports, details.get("detection_errors", {})),
        "decisions": kept_in_fp32(rows, nodes) if isinstance(rows, list) else None,
        "engine": _engine(engine),
        "previous": None if crash else difference(folder, params, reports),
        "data": data_of(reports.get("inputs"), spec if "trace" in reports else None),
        "params": yaml.safe_dump(params, sort_keys=False, allow_unicode=True) if params else None,
    }


# --- reading ----------------------------------------------------------------------------------------------------------


def _reports(folder: Path) -> tuple[Reports, Crash | None]:
    """The reports of this run, and where it crashed: what later stages left is of an earlier run."""
    if crash := crash_of(folder):
        report, error = (folder / "reports" / f"{name}.json" for name in (crash["stage"], "error"))
        if report.exists() and report.stat().st_mtime_ns > error.stat().st_mtime_ns:
            crash = None  # the stage has run well since
    return reports_of_run(folder, crash["stage"] if crash else None), crash


def _params(folder: Path) -> Params:
    with contextlib.suppress(StageError):
        values: Params = read_params(folder)
        return values
    return {}


# --- what it says -----------------------------------------------------------------------------------------------------


def _stage_row(stage: str, report: StageReport | None, crash: Crash | None) -> dict[str, Any]:
    row: dict[str, Any] = {"stage": stage, "work": _STAGE_WORK[stage], "status": "not run", "reason": "", "model": {}}
    if crash and crash["stage"] == stage:
        return row | {"status": "failed", "reason": crash["message"], "seconds": None}
    if report is None:
        return row | {"seconds": None}
    return row | {
        "status": report.get("status", "done"),
        "reason": report.get("reason", ""),
        "seconds": report.get("seconds"),
        "model": model_of(report),
    }


def _machine(probe: Machine | None) -> str:
    if not probe:
        return ""
    gpus = ", ".join(gpu["name"] for gpu in probe.get("gpus") or []) or "no GPU"
    tensorrt = f"TensorRT {probe['tensorrt']}" if probe.get("tensorrt") else "no TensorRT"
    return f"Machine: {gpus}, {tensorrt}, ONNX Runtime {probe.get('onnxruntime', 'unknown')}."


def _stage_rows(verify: Verification | None, reports: Reports) -> list[dict[str, Any]]:
    """The files as verify measured them, and the engine as the engine stage says."""
    if not verify:
        return []
    found = verify.get("stages", {}) | {"engine": engine_stage(reports)}
    return [{"name": name, **row} for name, row in found.items()]


def _plots(reports: Reports, errors: Mapping[str, Histogram]) -> list[tuple[str, str]]:
    """(caption, SVG) of each plot that there are numbers for."""
    verify: Mapping[str, Any] = reports.get("verify", {})
    found: list[tuple[str, str]] = []
    for name, caption, unit in (("score_error", "Score error", ""), ("box_error_px", "Box error", ", pixels")):
        marks = {level: value for level in ("p50", "p99", "max") if (value := verify.get(f"{name}_{level}"))}
        if svg := histogram([("final file", ORANGE, errors[name])], marks, unit) if name in errors else "":
            found.append((f"{caption} of the final file", Markup(svg)))
    return found


def _engine(engine: EngineReport | None) -> dict[str, Any]:
    sentence = engine_sentence(engine) if engine else "the engine stage has not run: no engine was built"
    engine = engine or {}
    is_run = was_made(engine) and "compiled" not in engine
    return {
        "by_hand": [] if is_run else _by_hand(engine.get("plan")),
        "sentence": f"{sentence[:1].upper()}{sentence[1:]}.",
        "facts": fact_rows(engine),
        "latency": latency_rows(engine),
        "layers": layer_rows(engine),
        "layers_say": "ONNX nodes in it" if engine.get("tensorrt") else "provider",
        "warnings": engine.get("warnings") or [],
        "findings": engine.get("lint") or [],
    }


def _by_hand(plan: EnginePlan | None) -> list[tuple[str, str]]:
    """The trtexec lines that build the engine on another machine: [(with what, command)]."""
    lines = (("TensorRT 11", plan.get("trtexec")), ("TensorRT 10", plan.get("trtexec_10"))) if plan else ()
    return [(version, line.replace(" --", " \\\n  --")) for version, line in lines if line]
