"""A comparison in a few lines of text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from truehalf.report.forms import Decision

if TYPE_CHECKING:
    from truehalf.verification.report import Report

_NARROW, _WIDE = 80, 120
WHOLE_WORDS: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}  # options and names can be copied
SUSPECTS_SHOWN = 3
ITEMS = 10  # of a list
COLUMNS = (  # of the table of outputs, here and on the page: title, field of OutputErrors
    *(("max |d|", "max_abs"), ("p99 |d|", "p99_abs"), ("limit", "limit"), ("max rel", "max_rel")),
    *(("cosine", "cosine"), ("SQNR dB", "sqnr_db"), ("NaN", "nan"), ("Inf", "inf")),
)


_LEFT_OUT = ("p99_abs", "max_rel", "cosine")  # of the columns, where there is little room


def report_text(
    report: Report,
    reference: Any,
    candidate: Any,
    width: int = _WIDE,
    items: int | None = ITEMS,
) -> str:
    """The verdict with its reasons, a table of outputs, what was found, where it goes wrong, what was not verified.

    Args:
        report: of a comparison.
        reference, candidate: as they are called.
        width: columns of the terminal, at least 80.
        items: of a list, at most; None: all.
    """
    width = max(_NARROW, min(width, _WIDE))
    samples = f"{report.samples} sample{'s' if report.samples != 1 else ''}"
    verdict = f"{report.verdict}: {candidate} against {reference}{up_to(report.plugins, ', ')}"
    lines = [verdict, f"{samples}, {report.evaluation}, {report.provider}" if report.samples else "nothing was run"]
    lines += ["", *_table(report, width)] if report.samples else []
    if report.detections is not None:
        lines += ["", *_detections(report.detections)]
    if report.classification is not None:
        lines += ["", *_classification(report.classification)]
    lines = [*lines[:2], *(part for line in lines[2:] for part in _wrapped(line, width))]
    lines += _listed("why:", report.reasons, width, items)
    if report.worst_sample is not None and not report.passed:
        lines += ["", f"the sample that differs most: {report.worst_sample}"]
    if report.suspects:
        likeliest = (suspect.sentence for suspect in report.suspects[:SUSPECTS_SHOWN])
        lines += _listed("where it goes wrong:", likeliest, width)
    if report.pins and not report.passed:
        lines += ["", "to keep these in FP32, append to truehalf convert:", f"  {report.pins}"]
    others = (item for item in report.not_verified if item not in report.reasons)
    lines += _listed("not verified:", others, width, items)
    return "\n".join(lines)


def up_to(plugins: Sequence[str], before: str = "") -> str:
    """How far a file was compared, where plugins are in it."""
    return f"{before}up to {', '.join(plugins)}, not run" if plugins else ""


def kept_in_fp32(decisions: Iterable[Decision]) -> list[str]:
    """A line for each node that stays FP32: its name, type, rule and reason."""
    kept = (row for row in decisions if row["precision"] == "fp32")
    return [f"{row['node']} ({row['op']}): {row['rule']}: {row['reason']}" for row in kept]


def _table(report: Report, width: int) -> Iterator[str]:
    columns = [each for each in COLUMNS if width == _WIDE or each[1] not in _LEFT_OUT]
    rows: list[Sequence[str]] = [("output", *(title for title, _ in columns), "")]
    for name, errors in report.outputs.items():
        values = [_number(getattr(errors, key), digits=7 if key == "cosine" else 4) for _, key in columns]
        rows.append((name, *values, {True: "passed", False: "failed", None: "not verified"}[errors.passed]))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [
            row[0].ljust(widths[0]),
            *(cell.rjust(width) for cell, width in zip(row[1:-1], widths[1:], strict=False)),
        ]
        yield "  ".join([*cells, row[-1]]).rstrip()
    paired = {name: errors.confident_max_abs for name, errors in report.outputs.items() if errors.paired}
    if paired:
        sure = ", ".join(f"{name} {_number(value)}" for name, value in paired.items())
        yield f"rows are paired as queries, one to one; of those above the score threshold, max |d|: {sure}"


def _detections(found: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"detections  {found['reference']} in the reference, {found['matched']} matched, {found['missed']} missed "
        f"({found['label_flips']} label flips, {found['displaced']} displaced, {found['absent']} absent), "
        f"{found['extra']} extra"
    )
    if found["box_error_px"] is not None:
        box, score = found["box_error_px"], found["score_error"]
        yield f"box error   p50 {box['p50']:.3g}, p99 {box['p99']:.3g}, max {box['max']:.3g} px"
        yield (
            f"score error p50 {score['p50']:.3g}, p99 {score['p99']:.3g}, max {score['max']:.3g}; "
            f"{found['rank_changes']} rank changes"
        )
    if found["self_ap50_95"] is not None:
        yield f"self AP     {found['self_ap50_95']:.4f} (50-95), {found['self_ap50']:.4f} (50)"
    if found["rank_error"] is not None and found["low_self_ap50_95_drop"] is not None:
        low = found["low_score_error"]
        each = "" if low is None else f"each is off by p99 {low['p99']:.3g}, max {low['max']:.3g}; "
        yield (
            f"low scores  self AP loses {found['low_self_ap50_95_drop']:.2g} with them; {each}by rank, scores are "
            f"off by p99 {found['rank_error']['p99']:.3g}, max {found['rank_error']['max']:.3g}"
        )


def _classification(found: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"classes     top-1 agreement {_number(found['top1_agreement'])}, top-5 {_number(found['top5_agreement'])}, "
        f"KL mean {_number(found['kl_mean'])}, max {_number(found['kl_max'])}"
    )


def listed(item: str, width: int) -> str:
    """An item of a list, in lines of this width in characters."""
    return textwrap.fill(item, width, initial_indent="  - ", subsequent_indent="    ", **WHOLE_WORDS)


def _wrapped(line: str, width: int) -> list[str]:
    """A line of prose in lines of this width; of the table, which is narrow enough, as it stands."""
    indent = " " * 12
    found = textwrap.wrap(line, width, subsequent_indent=indent, drop_whitespace=False, **WHOLE_WORDS)
    return [part.rstrip() for part in found] or [""]


def _listed(title: str, items: Iterable[str], width: int, most: int | None = None) -> list[str]:
    every = list(items)
    more = [f"and {len(every) - most} more (--verbose)"] if most is not None and len(every) > most else []
    found = [listed(item, width) for item in [*every[:most], *more]]
    return ["", title, *found] if found else []


def _number(value: float | None, digits: int = 4) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.{digits}g}"
