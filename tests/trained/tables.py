"""Markdown tables of what was measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any


def trained_table(rows: Sequence[dict[str, Any]]) -> str:
    """A row a model, and how many verdicts are right: passed where the task is the same, failed where it is not."""
    lines = ["| model | task | same | figures | verdict | reason | check | FP16 | s | MB |"]
    lines.append("|---|---|---|---|---|---|---|---:|---:|---:|")
    for row in rows:
        if "verdict" not in row:
            why = f"skipped: {row['skipped']}" if "skipped" in row else f"error: {row.get('error')}"
            lines.append(f"| {row['model']} | {row.get('task', '–')} | – | {why} | – | – | – | – | – | – |")
            continue
        cost = row.get("cost", {})
        seconds = cost.get("convert s", 0) + cost.get("compare s", 0)
        figures = ", ".join(f"{key} {value}" for key, value in row["figures"].items())
        share = "–" if row["fp16"] is None else f"{row['fp16']:.0%}"
        cells = [row["model"], row["task"], "yes" if row["same"] else "**no**", figures, row["verdict"]]
        cells += [", ".join(row["codes"]) or "–", row["check"] or "–", share, f"{seconds:.0f}"]
        lines.append("| " + " | ".join([*cells, f"{cost.get('peak MB', 0):.0f}"]) + " |")
    done = [row for row in rows if "verdict" in row]
    kinds = Counter(opinion(row) for row in done)
    counts = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    invalid = [f"{row['model']} ({row['valid']})" for row in done if row["valid"] != "yes"]
    not_run = [row["model"] for row in rows if "verdict" not in row]
    lines += ["", f"{len(done)} models: {counts}."]
    lines += [f"Not valid: {', '.join(invalid)}."] if invalid else []
    return "\n".join([*lines, *([f"Not measured: {', '.join(not_run)}."] if not_run else [])])


def opinion(row: dict[str, Any]) -> str:
    """A verdict against the task: "right", "false alarm", "missed" or "open" (not verified)."""
    if row["verdict"] == "not verified":
        return "open"
    return "right" if row["same"] == (row["verdict"] == "passed") else "false alarm" if row["same"] else "missed"


def faults_table(rows: Sequence[dict[str, Any]]) -> str:
    """A row a kind of fault: in how many models the verdict turns where the task does, before it, after it."""
    every = ("together", "early", "late", "neither")
    lines = ["| fault | " + " | ".join(every) + " | size at which the task / the verdict turns |"]
    lines.append("|---|---:|---:|---:|---:|---|")
    done = [row for row in rows if "kind" in row]
    for kind in dict.fromkeys(row["kind"] for row in done):
        of_kind = [row for row in done if row["kind"] == kind]
        counts = Counter(row["turns"] for row in of_kind)
        sizes = "; ".join(f"{row['model']} {_size(row['task at'])} / {_size(row['verdict at'])}" for row in of_kind)
        lines.append(f"| {kind} | " + " | ".join(str(counts[each]) for each in every) + f" | {sizes} |")
    left = [f"{row['model']}: {row.get('skipped') or row.get('error')}" for row in rows if "kind" not in row]
    return "\n".join([*lines, *(["", f"Not measured: {'; '.join(left)}."] if left else [])])


def _size(value: float | None) -> str:
    return "never" if value is None else f"{value:g}"
