"""The table at the end of every run (`gate` prints it; `python -m pipeline.summary` does so again)."""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import sys
from pathlib import Path

from pipeline.caveats import decided, not_verified, parity, warnings
from pipeline.engine import engine_sentence, latency_rows
from pipeline.forms import Outcome, Params, Reports, model_of, of_stage
from pipeline.workspace import STAGES, read_params, reports_of_run, root
from truehalf.engines.engine_report import EngineReport

_PLACES = 5  # of a line; the report has all


def print_summary(
    params: Params,
    reports: Reports,
    tracked: Outcome | None,
    crash: dict[str, str] | None = None,
) -> None:
    """Print per stage: status, parity, seconds, nodes, casts, FP16 share, size; then what was verified and what not.

    Args:
        crash: {stage, message} of a run that a stage ended.
    """
    from rich.console import Console
    from rich.table import Table

    width = None if sys.stdout.isatty() else max(100, shutil.get_terminal_size().columns)
    console = Console(width=width, highlight=False)
    table = Table(title=_title(params), title_justify="left", title_style="bold")
    table.add_column("stage")
    table.add_column("status")
    table.add_column("parity")
    for name in ("seconds", "nodes", "casts", "FP16 nodes", "size MB"):
        table.add_column(name, justify="right")
    for stage in STAGES:
        table.add_row(*_row(stage, reports, crash is not None and crash["stage"] == stage))
    console.print(table)
    if crash:
        console.print(f"failed: {crash['stage']}: {crash['message']}", markup=False, soft_wrap=True)
    for line in _sentences(reports, tracked):
        console.print(line, markup=False, soft_wrap=True)


def _title(params: Params) -> str:
    """Model, decoder where it is chosen, precision, and how it was made where that is not the default."""
    decoder, precision = params["decoder"]["name"], params["precision"]
    made = str(precision["dtype"])
    if made == "fp16" and precision["method"] != "convert":
        made += f" by {precision['method']}"
    return " · ".join([params["model"]["name"], *([decoder] if decoder != "none" else []), made])


def _row(stage: str, reports: Reports, crashed: bool) -> list[str]:
    report = of_stage(reports, stage)
    if report is None:
        return [stage, "failed" if crashed else "not run", "", "", "", "", "", ""]
    model = model_of(report)
    fraction = model.get("fp16_fraction")
    return [
        stage,
        str(report.get("status", "done")),
        parity(stage, reports),
        f"{report['seconds']:.1f}" if "seconds" in report else "",
        str(model.get("nodes", "")),
        str(model.get("casts", "")),
        f"{100 * fraction:.1f} %" if fraction else "",
        f"{model['size_mb']:.2f}" if "size_mb" in model else "",
    ]


def _sentences(reports: Reports, tracked: Outcome | None) -> list[str]:
    lines = [f"WARNING: {warning}" for warning in warnings(reports)]
    verify = reports.get("verify")
    if verify:
        lines.append(f"verdict: {verify['verdict']} (evaluation: {verify.get('evaluation', 'none')})")
        if verify.get("ap50_95") is not None:
            lines.append(
                f"AP50-95 {verify['ap50_95_fp32']:.4f} in FP32, {verify['ap50_95']:.4f} in the final file; "
                f"AP50 {verify['ap50_fp32']:.4f}, {verify['ap50']:.4f}"
            )
        if (matched := verify.get("matched_fraction")) is not None:
            lines.append(f"{100 * matched:.2f} % of the FP32 detections matched")
        if (agreement := verify.get("top1_agreement")) is not None:
            lines.append(f"{100 * agreement:.2f} % of the samples have the FP32 best class (top 1)")
        if verify.get("tensor_error") is not None:
            lines.append(f"outputs differ by at most {verify['tensor_error']:.2g} of their largest value")
    if verify and (suggestion := verify.get("suggestion")):
        lines.append(f"suggested pins: {suggestion['sentence']}")
        lines += [f"    {suggestion['selectors']}"] if suggestion["selectors"] else []
    engine = reports.get("engine")
    if engine:
        lines += _engine_lines(engine)
    lines += [f"not verified: {item}" for item in not_verified(reports)]
    if places := decided(reports):
        named = ", ".join(place.partition(": ")[0] for place in places[:_PLACES])
        more = f" and {len(places) - _PLACES} more" if len(places) > _PLACES else ""
        lines.append(f"trace: Python decided while the model was traced, and outputs agree: {named}{more}")
    lines.append("report: reports/report.html")
    if tracked:
        lines.append(f"MLflow: {tracked['message']}")
    return lines


def _engine_lines(engine: EngineReport) -> list[str]:
    lines = [f"engine: {engine_sentence(engine)}"]
    for row in latency_rows(engine):
        lines.append(
            f"engine: {row['where']}: p50 {row['p50_ms']:.3g} ms, p99 {row['p99_ms']:.3g} ms, "
            f"{row['throughput_per_s']:.3g} images a second"
        )
    errors = [finding for finding in engine.get("lint") or [] if finding["severity"] == "error"]
    lines += [f"lint: {finding['rule']}: {finding['node']}: {finding['message']}" for finding in errors]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m pipeline.summary", description=__doc__)
    parser.add_argument("--failed-stage", metavar="STAGE", help="of a run that crashed in this stage")
    folder, failed_stage = root(), parser.parse_args().failed_stage
    crash = None if failed_stage is None else _crash(folder, failed_stage)
    print_summary(read_params(folder), reports_of_run(folder, failed_stage), None, crash)


def _crash(folder: Path, stage: str) -> dict[str, str]:
    """What the stage reported; only its name where reports/error.json is of another stage."""
    with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
        report = json.loads((folder / "reports" / "error.json").read_text())
        if report["stage"] == stage:
            return {"stage": stage, "message": str(report["message"])}
    return {"stage": stage, "message": "reports/error.json does not say why"}


if __name__ == "__main__":
    main()
