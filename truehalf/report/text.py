"""A comparison in lines of text: a first screen for everybody, and with --verbose every figure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from truehalf.report.numbers import number

if TYPE_CHECKING:
    from truehalf.verification.report import Report

_NARROW, _WIDE = 80, 120
WHOLE_WORDS: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}  # options and names can be copied
ITEMS = 3  # of a list on the first screen
_LABEL = 13  # columns
COLUMNS = (  # of the table of outputs, here and on the page: title, field of OutputErrors
    *(("rms", "rms"), ("half step", "response"), ("max |d|", "max_abs"), ("NaN", "nan"), ("Inf", "inf")),
)
_PASSED = {True: "passed", False: "failed", None: "not verified"}


@dataclass(frozen=True)
class Screen:
    """Columns of the terminal, and whether all is printed or the first of each list."""

    columns: int = _WIDE
    is_verbose: bool = False

    @property
    def width(self) -> int:
        return max(_NARROW, min(self.columns, _WIDE))

    def first(self, items: Iterable[str]) -> list[str]:
        """The items that are shown, and a line that says how many are not."""
        every = list(items)
        if self.is_verbose or len(every) <= ITEMS:
            return every
        return [*every[:ITEMS], f"and {len(every) - ITEMS} more (--verbose)"]

    def listed(self, title: str, items: Iterable[str]) -> list[str]:
        """A blank line, the title and the items, where there are items."""
        shown = [listed(item, self.width) for item in self.first(items)]
        return ["", title, *shown] if shown else []

    def labelled(self, label: str, text: str) -> str:
        """A line that begins with a label; what does not fit stands below its text."""
        first, further = f"{label:<{_LABEL}}", " " * _LABEL
        return textwrap.fill(text, self.width, initial_indent=first, subsequent_indent=further, **WHOLE_WORDS)


def listed(item: str, width: int) -> str:
    """An item of a list, in lines of this width in characters."""
    return textwrap.fill(item, width, initial_indent="  - ", subsequent_indent="    ", **WHOLE_WORDS)


def comparison_lines(report: Report, screen: Screen) -> list[str]:
    """Lines below the verdict of a comparison: figures, reasons, place of the error, pins, what was not checked."""
    lines = [screen.labelled("compared", _basis(report))]
    if report.detections is not None:
        lines += [screen.labelled(*row) for row in _detection_rows(report.detections, screen.is_verbose)]
    if report.classification is not None:
        lines.append(screen.labelled("classes", _classes(report.classification)))
    if report.samples and (screen.is_verbose or (report.detections is None and report.classification is None)):
        lines += ["", *_table(report)] if screen.is_verbose else []
        lines += screen.listed("measured:", (each.reason for each in report.outputs.values() if each.passed))
    lines += screen.listed("why:", report.reasons)
    if report.worst_sample is not None and not report.passed:
        lines += ["", f"the sample that differs most: {report.worst_sample}"]
    lines += screen.listed("where it goes wrong:", (suspect.sentence for suspect in report.suspects))
    if report.pins and not report.passed:
        lines += ["", "to keep these in FP32, append to truehalf convert:", f"  {report.pins}"]
    return lines + screen.listed("outside this check:", (i for i in report.not_verified if i not in report.reasons))


def up_to(plugins: Sequence[str]) -> str:
    """How far a file was compared, where plugins are in it."""
    return f"up to {', '.join(plugins)}, not run" if plugins else ""


def computed_by(evaluation: str, provider: str) -> str:
    """How outputs of the final file were computed, in words."""
    if evaluation.startswith("emulated-fp16"):
        sums = ", sums inside nodes too" if evaluation.endswith("pessimistic") else ""
        return f"run with the rounding of FP16 hardware{sums}, emulated on the CPU"
    holds = "; it holds no FP16" if evaluation == "fp32-cpu" else ""
    return f"run on {provider}{holds}"


def _basis(report: Report) -> str:
    if not report.samples:
        return "nothing was run"
    samples = f"{report.samples} sample{'s' if report.samples != 1 else ''}"
    return ", ".join(filter(None, [samples, computed_by(report.evaluation, report.provider), up_to(report.plugins)]))


def _detection_rows(found: Mapping[str, Any], is_verbose: bool) -> list[tuple[str, str]]:
    missed = f"{found['missed']} missed"
    if found["missed"]:
        missed += f" ({found['label_flips']} as another class)"
    again = f"{found['matched']} of {found['reference']} found again, {missed}, {found['extra']} extra"
    rows = [("detections", again)]
    box, score = found["box_error_px"], found["score_error"]
    if box is not None and not is_verbose:
        rows.append(("differences", f"boxes by {number(box['max'])} px and scores by {number(score['max'])} at most"))
    if not is_verbose:
        return rows
    if box is not None:
        rows.append(("box error", f"{_levels(box)} px"))
        rows.append(("score error", _levels(score)))
    if found["self_ap50_95"] is not None:
        likeness = f"AP50-95 {found['self_ap50_95']:.4f}, AP50 {found['self_ap50']:.4f}"
        rows.append(("likeness", f"{likeness}, with the FP32 model's detections as labels"))
    if found["rank_error"] is not None and found["low_self_ap50_95_drop"] is not None:
        parts = [f"with detections from score 0.1 on as labels AP50-95 drops by {found['low_self_ap50_95_drop']:.2g}"]
        if (low := found["low_score_error"]) is not None:
            parts.append(f"scores differ by {_levels(low)}")
        parts.append(f"the n-th best scores of an image by {_levels(found['rank_error'])}")
        rows.append(("low scores", "; ".join(parts)))
    return rows


def _levels(spread: Mapping[str, float]) -> str:
    return ", ".join(f"{level} {spread[level]:.3g}" for level in ("p50", "p99", "max") if level in spread)


def _classes(found: Mapping[str, Any]) -> str:
    same = found["samples"] - found["label_flips"] - found["near_ties"]
    return f"{same} of {found['samples']} best classes are the same, {found['near_ties']} others are near ties"


def _table(report: Report) -> list[str]:
    """Errors by output."""
    rows = [("output", *(title for title, _ in COLUMNS), "")]
    for name, errors in report.outputs.items():
        cells = [_cell(getattr(errors, field)) for _, field in COLUMNS]
        rows.append((name, *cells, _PASSED[errors.passed]))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for name, *cells, state in rows:
        figures = [cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=False)]
        lines.append("  ".join([name.ljust(widths[0]), *figures, state]).rstrip())
    return lines


def _cell(value: float | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.4g}"
