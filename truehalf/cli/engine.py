"""truehalf engine: build of a planned engine on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from truehalf.cli.form import FAILED, FILE, PASSED, Command, guarded, option, output_of, output_options
from truehalf.report.terminal import wrapped

if TYPE_CHECKING:
    from truehalf.engines.engine_report import EngineReport

_EXAMPLES = ("truehalf engine artifacts/engine/plan.json", "truehalf engine plan.json --out built/")
_EXITS = (
    "Exit codes: 0 built, or planned where this machine cannot build it, 1 failed, 2 bad input, 70 defect of truehalf, "
    "130 stopped."
)


@click.command(cls=Command, examples=_EXAMPLES, exits=_EXITS)
@click.argument("plan", type=FILE, metavar="plan.json")
@option("--out", type=FILE, metavar="FOLDER", help="folder for the engine and engine.json [the plan's]")
@option("--workspace", type=FILE, default=".", metavar="FOLDER", help="project that holds the FP32 reference [.]")
@output_options
def command(**given: Any) -> int:
    """Build the engine of a plan on this machine, verify it, and write engine.json, the whole report."""
    return guarded("engine", lambda: _engine(given))


def _engine(given: dict[str, Any]) -> int:
    from truehalf.engines.build import REPORT_FILE, execute_plan
    from truehalf.output_paths import check_outputs

    plan, out, output = given["plan"], given["out"], output_of(given)
    check_outputs({"--json": output.file}, {"plan.json": plan})
    report = execute_plan(plan, out, workspace=given["workspace"])
    findings = [f"{each['severity']} {each['rule']}: {each['message']}" for each in report.get("lint", [])]
    further = ["", "lint:", *wrapped(findings)] if findings else []
    output.give(_lines(report, (out or plan.parent) / REPORT_FILE), report, further)
    return FAILED if report["status"] == "failed" else PASSED


def _lines(report: EngineReport, file: Path) -> list[str]:
    """The state of the engine, its precision, outputs and latency, and what was not verified."""
    precision, parity = report["precision"], report.get("parity")
    built = file.parent / Path(report.get("engine", "")).name
    lines = [f"{report['status']}: {report.get('reason') or built}", f"report: {file}", ""]
    share = precision["fp16_fraction"]
    of_nodes = "" if share is None else f", {100 * share:.1f} % of {precision['float_nodes']} float nodes FP16"
    lines.append(f"precision: {precision['declared']} declared{of_nodes}; layers: {precision['state']}")
    if parity is not None:
        lines.append(f"outputs: {parity['state']}" + (f": {parity['reason']}" if parity.get("reason") else ""))
    for row in report.get("latency", []):
        at = f"profile {row['profile']}, {' and '.join(row['points'])}, batch {row['samples']}"
        lines.append(f"latency: {at}: p50 {row['p50_ms']:.3g} ms, p99 {row['p99_ms']:.3g} ms")
    missing = report["not_verified"]
    return lines + (["", "not verified:", *wrapped(missing)] if missing else [])
