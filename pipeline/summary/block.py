"""Verdict of a run on the terminal: the delivered file, its accuracy and precision, the engine, what was not checked.
The stage `gate` prints it at the end of every run.
"""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.caveats import failures, not_verified, warnings
from pipeline.engine import engine_sentence, latency_rows, was_made
from pipeline.forms import Crash, Outcome, Params, Reports, model_of, names_of, of_stage
from pipeline.report.headlines import found
from pipeline.report.metrics import metrics_of
from pipeline.summary.deliverable import deliver, withdraw
from pipeline.workspace import crash_of, json_of, reports_of_run
from truehalf.codes import codes_in
from truehalf.config.params import read_params
from truehalf.engines.engine_report import fused_sentence
from truehalf.report.numbers import count, percent, worded
from truehalf.report.terminal import show, terminal_width

MOST_LINES = 12  # of the block of a run that has not failed, on 80 columns
_ALWAYS = {"sums-not-rounded"}  # codes of what no run by emulation checks; the page behind the link has them
_ALWAYS_PAGE = "docs/explanation/fp16-emulation.md"
_UNCUT = 0
_ERRORS = ("box error p99 {box_error_px_p99:n} px", "score error p99 {score_error_p99:n}")
_SEARCH = "verify.suggest=true, which looks for the shortest list that holds the gates"
Row = tuple[str, str, int]  # label, text, lines at most


@dataclass(frozen=True)
class Ended:
    """A run that has ended.

    Attributes:
        tracked: what came of logging it; None where it was not.
        crash: of a run that a stage ended.
    """

    folder: Path
    params: Params
    reports: Reports
    tracked: Outcome | None = None
    crash: Crash | None = None

    @property
    def verdict(self) -> str:
        """ "passed", "failed" or "not verified"."""
        if self.crash or failures(self.reports, self.params):
            return "failed"
        return str(self.reports["verify"]["verdict"])


def ended(folder: Path, failed_stage: str | None = None) -> Ended:
    """The run of a workspace.

    Args:
        failed_stage: the stage that it crashed in; None where none did.
    """
    reports = reports_of_run(folder, failed_stage)
    if failed_stage is not None:
        return Ended(folder, read_params(folder), reports, crash=_crash(folder, failed_stage))
    return Ended(folder, read_params(folder), reports, json_of(folder / "reports" / "track.json"))


def show_verdict(run: Ended) -> None:
    """Link the file that the run delivers, and print the block. A run that failed delivers none, and what was delivered
    before goes, unless it failed before it made a file.
    """
    if run.verdict == "failed" and (run.crash is None or run.crash["stage"] != "trace"):
        withdraw(run.folder)
    made = None if run.verdict == "failed" else deliver(run.folder, run.params)
    show(text(run, made, terminal_width()))


def text(run: Ended, made: Path | None, width: int) -> str:
    """The block: a line with the verdict, below it one row a question, with its label.

    Args:
        made: what the run delivers, relative to its workspace.
        width: columns. A row whose text has to be copied whole is not wrapped.
    """
    verdict = f"{run.verdict}  {' · '.join(names_of(run.params))}{_measured(run)}"
    rows = [*(_failure(run) if run.verdict == "failed" else []), *([] if run.crash else _facts(run, made))]
    lines = [verdict, *(line for row in rows for line in _wrapped(row, width))]
    if not run.crash and (caveats := _not_covered(run)):
        free = max(1, MOST_LINES - len(lines) - 1)  # the last is the report's
        lines += _wrapped(("not covered", caveats, free), width)
    return "\n".join(["", *lines, _report(run)])


def _measured(run: Ended) -> str:
    if run.crash:
        return f", stopped in {run.crash['stage']}"
    evaluation = run.reports.get("verify", {}).get("evaluation")
    return f", evaluation: {evaluation}" if evaluation else ""


# --- a run that failed ------------------------------------------------------------------------------------------------


def _failure(run: Ended) -> list[Row]:
    """The culprit, what to paste against it, and the gates that do not hold."""
    if run.crash:
        done = ", ".join(run.reports)
        return [("why", run.crash["message"], _UNCUT), *([("done before", done, 1)] if done else [])]
    reasons = [reason.removeprefix("verify: ") for reason in failures(run.reports, run.params)]
    verify: Any = run.reports.get("verify", {})
    place, pins = verify.get("place") or {}, verify.get("suggestion") or {}
    rows: list[Row] = []
    if verify.get("status") == "failed" and place:
        rows.append(("why", place["sentence"], 12))
        selectors = (pins or place).get("selectors")
        rows += [("pins", pins["sentence"], 6)] if pins else []
        rows += [("try", selectors, _UNCUT)] if selectors else []
        rows += [("or", _SEARCH, 2)] if selectors and not pins else []
    return [*rows, ("gates" if rows else "why", "; ".join(reasons), 6)]


# --- what every run has -----------------------------------------------------------------------------------------------


def _facts(run: Ended, made: Path | None) -> list[Row]:
    verify, engine = run.reports.get("verify"), run.reports.get("engine")
    rows = [("warning", warning, 3) for warning in warnings(run.reports)]
    if run.verdict == "not verified":
        rows.append(("why", "; ".join(verify.get("reasons", [])) if verify else "verify has not run", 2))
    rows.append(("file", _file(run, made), 2))
    if verify:
        rows.append(("accuracy", "; ".join([found(verify), *worded(_ERRORS, verify)]), 2))
    rows.append(("precision", _precision(run), 3))
    if engine:
        timed = [f"p50 {row['p50_ms']:.3g} ms at {row['where']}" for row in latency_rows(engine)[:1]]
        rows.append(("engine", "; ".join([engine_sentence(engine), *timed]), 2))
    return rows


def _file(run: Ended, made: Path | None) -> str:
    before, after = (model_of(of_stage(run.reports, stage)).get("size_mb") for stage in ("slim", "cast_cleanup"))
    size = f", {after:.2f} MB" if after is not None else ""
    size += f" (before: {before:.2f} MB)" if size and before is not None else ""
    if made:
        return f"{made}{size}"
    where = "none is delivered" if run.verdict == "failed" else "in the cache; a run in the project delivers it"
    return where + size


def _precision(run: Ended) -> str:
    model, metrics = model_of(of_stage(run.reports, "cast_cleanup")), metrics_of(run.reports, run.params)
    if run.params["precision"]["dtype"] == "fp32":
        return "FP32: nothing was converted"
    parts = []
    if (share := model.get("fp16_fraction")) is not None:
        parts.append(f"{percent(share)} of {count(model['float_nodes'])} float nodes in FP16")
    if rules := _kept(run.folder):
        parts.append(f"kept FP32: {', '.join(f'{number_of} {rule}' for rule, number_of in rules.most_common(4))}")
    if metrics["casts"] is not None:
        parts.append(f"{metrics['casts']} casts added")
    return "; ".join(filter(None, [*parts, fused_sentence(run.reports.get("engine", {}))]))


def _kept(folder: Path) -> Counter[str]:
    """Nodes that stay FP32, by the rule that keeps them."""
    rows = json_of(folder / "artifacts" / "fp16" / "decisions.json") or []
    return Counter(str(row.get("rule")) for row in rows if row.get("precision") == "fp32")


def _not_covered(run: Ended) -> str:
    """What this run did not check and another may; what no emulation checks is behind a link."""
    engine = run.reports.get("engine", {})
    said = engine.get("not_verified", []) if "compiled" in engine or (engine and not was_made(engine)) else []
    items = [item for item in not_verified(run.reports) if item not in said]
    passing = [re.sub(r" \[[a-z-]+\]", "", item) for item in items if not _ALWAYS & set(codes_in(item))]
    always = [f"always: {_ALWAYS_PAGE}"] if len(passing) < len(items) else []
    return "; ".join([*passing, *always])


def _report(run: Ended) -> str:
    tracked = run.tracked
    logged = f"; MLflow: {tracked['message']}" if tracked else ""
    if tracked and tracked["run_id"] and tracked["status"] != "not logged" and not tracked.get("registered"):
        logged = f"; MLflow: run {tracked['run_id'][:8]} in {tracked['experiment']}"
    return f"  {'report':<11}  reports/report.html{logged}"


def _wrapped(row: Row, width: int) -> list[str]:
    label, content, most = row
    first = f"  {label:<11}  "
    if most == _UNCUT:
        return [first + content]
    wrapper = textwrap.TextWrapper(
        width,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_long_words=False,
        break_on_hyphens=False,
        max_lines=most,
        placeholder=" …",
    )
    lines = wrapper.wrap(content.replace(" %", "\u00a0%"))  # a number and its unit stay in a line
    return [line.replace("\u00a0", " ") for line in lines]


# --- reading ----------------------------------------------------------------------------------------------------------


def _crash(folder: Path, stage: str) -> Crash:
    """What the stage reported; only its name where reports/error.json is of another stage."""
    found = crash_of(folder)
    if found is not None and found["stage"] == stage:
        return found
    return {"stage": stage, "message": "reports/error.json does not say why"}
