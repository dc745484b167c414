"""Verdict of a run on the terminal: file, accuracy, precision, engine, and the parts that were not checked.

The stage `finish` prints it at the end of every run.
"""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.figures import accuracy_sentence, figures_of, low_precision_note
from pipeline.run_record import CRASHED, FAILED, Run
from pipeline.track import NOT_LOGGED, Outcome
from truehalf.codes import codes_in, uncoded
from truehalf.report.engine import engine_sentence, fused_sentence, point_text
from truehalf.report.fp32_nodes import rule_words
from truehalf.report.numbers import count, number, percent

MOST_LINES = 12  # of a run that has not failed, on 80 columns
_BEYOND_EMULATION = {"sums-not-rounded"}  # codes of gaps that every emulated run has
_EMULATION_PAGE = "docs/explanation/fp16-emulation.md"
_UNCUT = 0  # lines of a row that is copied whole
Row = tuple[str, str, int]  # label, text, lines at most


def verdict_block(run: Run, delivered: Path | None, outcome: Outcome | None, width: int) -> str:
    """The block: a line with the verdict, below it one labelled row a topic.

    Args:
        delivered: the delivered file, relative to the workspace.
        outcome: result of logging the run; None where it was not logged.
        width: columns of the terminal.
    """
    rows = _failure_rows(run) if run.has_failed else []
    rows += [] if run.crash else _fact_rows(run, delivered)
    lines = [_headline(run), *(line for row in rows for line in _wrapped(row, width))]
    if not run.crash and (gaps := _gaps(run)):
        free = max(1, MOST_LINES - len(lines) - 1)  # the last line is the report's
        lines += _wrapped(("not checked", gaps, free), width)
    return "\n".join(["", *lines, _report_line(outcome)])


def _headline(run: Run) -> str:
    title = " · ".join(run.names)
    if run.crash:
        return f"{FAILED}  {title}, stopped in {run.crash.stage}"
    evaluation = run.reports.verify.evaluation if run.reports.verify else None
    return f"{run.verdict}  {title}" + (f", evaluation: {evaluation}" if evaluation else "")


def _failure_rows(run: Run) -> list[Row]:
    """The node at fault, arguments to paste against it, and the gates that do not hold."""
    if run.verdict == CRASHED:
        finished = ", ".join(run.stages)
        rows: list[Row] = [("why", reason, _UNCUT) for reason in run.reasons]
        return [*rows, ("done before", finished, 1)] if finished else rows
    verify = run.reports.verify
    rows = []
    if verify and verify.verdict == FAILED and verify.place:
        place: Mapping[str, Any] = verify.place
        rows.append(("why", place["sentence"], MOST_LINES))
        rows += [("try", place["selectors"], _UNCUT)] if place.get("selectors") else []
    reasons = "; ".join(reason.removeprefix("verify: ") for reason in run.reasons)
    return [*rows, ("gates" if rows else "why", reasons, 6)]


def _fact_rows(run: Run, delivered: Path | None) -> list[Row]:
    verify, engine = run.reports.verify, run.reports.engine
    notes = [*run.warnings, *filter(None, [low_precision_note(run)])]
    rows: list[Row] = [("warning", note, 3) for note in notes]
    if not run.has_failed and run.reasons:
        rows.append(("why", "; ".join(run.reasons), 2))
    rows.append(("file", _file_text(run, delivered), 2))
    if verify:
        rows.append(("accuracy", _accuracy_text(run), 2))
    rows.append(("precision", _precision_text(run), 3))
    if engine:
        latency = [f"p50 {number(row['p50_ms'])} ms at {point_text(row)}" for row in engine.latency[:1]]
        rows.append(("engine", "; ".join([engine_sentence(engine), *latency]), 2))
    return rows


def _file_text(run: Run, delivered: Path | None) -> str:
    before, after = (run.model_facts(stage).get("size_mb") for stage in ("slim", "cast_cleanup"))
    size = f", {after:.2f} MB" if after is not None else ""
    size += f" (FP32: {before:.2f} MB)" if size and before is not None else ""
    if delivered:
        return f"{delivered}{size}"
    return ("none is delivered" if run.has_failed else "in DVC's cache; a run in the project delivers it") + size


def _accuracy_text(run: Run) -> str:
    figures = figures_of(run)
    parts = [accuracy_sentence(run)]
    parts += [f"box error p99 {number(figures['box_p99'])} px"] if figures["box_p99"] is not None else []
    parts += [f"score error p99 {number(figures['score_p99'])}"] if figures["score_p99"] is not None else []
    return "; ".join(parts)


def _precision_text(run: Run) -> str:
    if run.params["precision"]["dtype"] == "fp32":
        return "FP32: nothing was converted"
    figures, parts = figures_of(run), []
    if figures["fp16_nodes"] is not None:
        nodes = count(run.model_facts("cast_cleanup")["float_nodes"])
        parts.append(f"{percent(figures['fp16_nodes'])} of {nodes} float nodes in FP16")
    rules = Counter(str(row.get("rule")) for row in run.decisions or [] if row.get("precision") == "fp32")
    if rules:
        kept = ", ".join(f"{nodes} {rule_words(rule)}" for rule, nodes in rules.most_common(4))
        parts.append(f"in FP32: {kept}")
    if figures["casts"] is not None:
        parts.append(f"{count(int(figures['casts']))} casts added")
    fused = fused_sentence(run.reports.engine) if run.reports.engine else ""
    return "; ".join(filter(None, [*parts, fused]))


def _gaps(run: Run) -> str:
    """Parts that this run did not check and another may; of the gaps of every emulated run only the page's place."""
    engine = run.reports.engine
    stated = (engine.not_verified or []) if engine and engine.parity is None else []
    gaps = [gap for gap in run.not_verified if gap not in stated]
    own = [uncoded(gap) for gap in gaps if not _BEYOND_EMULATION & set(codes_in(gap))]
    return "; ".join([*own, *([f"limits of emulation ({_EMULATION_PAGE})"] if len(own) < len(gaps) else [])])


def _report_line(outcome: Outcome | None) -> str:
    logged = ""
    if outcome:
        logged = f"; MLflow: {outcome['message']}"
        if outcome["status"] != NOT_LOGGED and not outcome.get("registered"):
            logged = f"; MLflow: run {str(outcome['run_id'])[:8]} in {outcome['experiment']}"
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
    lines = wrapper.wrap(re.sub(r" (?=%|px|ms|MB\b)", "\u00a0", content))  # a number and its unit stay in a line
    return [line.replace("\u00a0", " ") for line in lines]
