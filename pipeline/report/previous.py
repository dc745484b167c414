"""Difference of a run to the previous one of its model: options, and the figures by which runs are compared.

runs/.last/<model>-<decoder>.json holds the last two runs that differ. Neither DVC nor git looks at it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline.forms import Params, Reports
from pipeline.report.metrics import metrics_of
from pipeline.tracking.record import NO_EFFECT, flat_params, in_effect
from pipeline.workspace import PROJECT_VARIABLE, json_of
from truehalf.files import write_text
from truehalf.report.numbers import count, number, percent
from truehalf.report.numbers import precision as digits

_FIGURES: dict[str, tuple[str, Callable[[Any], str]]] = {  # by key of metrics.json
    "verdict": ("verdict", str),
    "ap": ("AP50-95", digits),
    "ap_drop": ("AP50-95 lost", digits),
    "matched": ("matched", lambda value: percent(value, 2)),
    "box_p99": ("box error p99, pixels", number),
    "score_p99": ("score error p99", number),
    "fp16": ("arithmetic in FP16", percent),
    "casts": ("casts added", count),
    "fused": ("fused attention", count),
    "mb": ("size, MB", number),
}


def remember(folder: Path, params: Params, reports: Reports) -> None:
    """Keep what a verified run was; one that is like the last one changes nothing."""
    if params and "verify" in reports:
        place, run = _place(folder, params), _of(params, reports)
        held = json_of(place) or []
        if held[-1:] != [run]:
            write_text(place, json.dumps([*held[-1:], run], indent=1) + "\n")


def difference(folder: Path, params: Params, reports: Reports) -> dict[str, list[Any]] | None:
    """Of the run that was remembered last to the one before: options and figures that differ, each with its name and
    both values as the page shows them, and in `same` the names of the figures that do not. None where there is none
    before, or this run is another.
    """
    held = json_of(_place(folder, params)) if params else None
    if not held or len(held) < 2 or held[-1] != _of(params, reports):
        return None
    before, now = held
    old, new = before["params"], now["params"]
    options = [_row(key, str, old.get(key), new.get(key)) for key in sorted({*old, *new})]
    both = before["metrics"], now["metrics"]
    figures = [_row(name, shown, *(metrics[key] for metrics in both)) for key, (name, shown) in _FIGURES.items()]
    moved = [row for row in figures if row["before"] != row["now"]]
    return {
        "options": [row for row in options if row["before"] != row["now"] and NO_EFFECT not in row.values()],
        "figures": moved,
        "same": [row["name"] for row in figures if row not in moved],
    }


def _of(params: Params, reports: Reports) -> dict[str, Any]:
    return {"params": in_effect(flat_params(params)), "metrics": metrics_of(reports, params)}


def _place(folder: Path, params: Params) -> Path:
    """In the project, also of a run in a folder of a job."""
    names = "-".join(str(params[section]["name"]) for section in ("model", "decoder"))
    return Path(os.environ.get(PROJECT_VARIABLE, folder)) / "runs" / ".last" / f"{names}.json"


def _row(name: str, shown: Callable[[Any], str], before: Any, now: Any) -> dict[str, str]:
    old, new = ("–" if value is None else shown(value) for value in (before, now))
    return {"name": name, "before": old, "now": new}
