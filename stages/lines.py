"""Line that a stage prints when it has ended: its name, some of its report, its seconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from truehalf.report.numbers import count, percent

_WIDTH = 44  # columns of the report's figures, so that seconds stand below each other on 80 columns
_SUMMARIES = {"skipped": "skipped", "compiled": "compiled, not run"}  # by status


def _percent_2(value: Any) -> str:
    return percent(value, 2)


def _megabytes(value: float) -> str:
    return f"{value:.2f} MB"


# By stage (path in its report, number to text, words after it); a figure that the report lacks is left out.
FIGURES: dict[str, tuple[tuple[str, Callable[[Any], str], str], ...]] = {
    "inputs": (("calibration.samples", count, " samples to calibrate"), ("verification.samples", count, " to verify")),
    "trace": (("model.nodes", count, " nodes"), ("parity.status", str, "")),
    "slim": (("model.nodes", count, " nodes"), ("parity.status", str, "")),
    "calibrate": (("tensors", count, " tensors"), ("samples", count, " samples")),
    "fp16": (
        ("model.fp16_fraction", percent, " FP16"),
        ("costs.placed.casts", count, " casts added"),
        ("verdicts.measured", count, " nodes pinned by its check"),
    ),
    "cast_cleanup": (("casts_after", count, " casts"), ("model.size_mb", _megabytes, "")),
    "reference": (("samples", count, " samples of the FP32 model, trace and slim"),),
    "verify": (("verdict", str, ""), ("matched_fraction", _percent_2, " matched")),
    "engine": (("status", str, ""),),
}


def line(stage: str, report: Mapping[str, Any], seconds: float) -> str:
    """The line of a stage.

    Args:
        stage: its name in dvc.yaml.
        report: the content of reports/<stage>.json.
        seconds: that it took.
    """
    parts = [(_value(report, path), shown, after) for path, shown, after in FIGURES.get(stage, ())]
    figures = ", ".join(f"{shown(value)}{after}" for value, shown, after in parts if value is not None)
    summary = _SUMMARIES.get(str(report.get("status")), figures)
    return f"{stage:<12}  {summary:<{_WIDTH}} {seconds:>5.1f} s"


def _value(report: Any, path: str) -> Any:
    """The value at a dotted path of a report; None where it has none."""
    for name in path.split("."):
        report = report.get(name) if isinstance(report, Mapping) else None
    return report
