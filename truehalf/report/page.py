"""The one page of a result: sections from a template, each there when there is something to say.

A page loads nothing, runs nothing and holds no date, so it opens anywhere and equal results give an equal file.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from truehalf.json_values import JsonObject
from truehalf.report.drawings import BLUE, ORANGE, Histogram, NodeError, error_chart, histogram
from truehalf.report.forms import SuggestedPins
from truehalf.report.numbers import count, number, percent, precision

_TEMPLATE = Path(__file__).with_name("page.html.j2")
_FILTERS: Mapping[str, Callable[..., str]] = {
    "number": number,
    "precision": precision,
    "percent": percent,
    "count": count,
}
_LISTED = 400  # nodes that stay FP32
_SECTIONS = (
    *("tiles", "not_verified", "warnings", "decided", "engine", "findings", "suspects", "suggestion", "images"),
    *("stage_rows", "node_errors", "no_profile", "histograms", "claims", "plots", "stages", "comparison", "conversion"),
    *("decisions", "data", "config", "params"),
)


class NodeRow(TypedDict, total=False):
    """NodeError as details.json has it: None where an error is not finite."""

    node: str
    op_type: str
    precision: str
    tensor: str
    local_error: float | None
    error: float | None
    rank: int | None
    selector: str


class MeasuredStage(TypedDict, total=False):
    histograms: dict[str, Histogram]


class Location(TypedDict, total=False):
    """Where a file goes wrong; nonfinite and suspects the worst first. selectors: what keeps all suspects FP32, quoted
    for the command line.
    """

    sample: str
    sentence: str
    selectors: str
    nonfinite: list[JsonObject]
    suspects: list[JsonObject]


class Verdict(TypedDict, total=False):
    """verdict.json; findings are gates and checks."""

    verdict: str
    reasons: list[str]
    findings: list[JsonObject]
    checks: list[dict[str, str]]
    not_verified: list[str]
    place: Location | None
    suggestion: SuggestedPins | None


class Details(TypedDict, total=False):
    """What the page reads of details.json."""

    images: list[JsonObject]
    profile: list[NodeRow] | None
    no_profile: str
    stages: dict[str, MeasuredStage]
    detection_errors: dict[str, Histogram]


def page(content: Mapping[str, object]) -> str:
    """The page of what is known; a section without content is left out.

    Args:
        content: `title`, `headline` ({state: passed | failed | unknown, word, sentence, reasons}), and any of the
            sections.
    """
    return rendered(_TEMPLATE, dict.fromkeys(_SECTIONS) | dict(content), _FILTERS)


def rendered(template: Path, content: Mapping[str, object], filters: Mapping[str, Callable[..., str]]) -> str:
    """A page from a template: what is missing is an error, and text is escaped."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(template.parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= filters
    return environment.get_template(template.name).render(**content)


def verification_sections(verdict: Verdict, details: Details, folder: Path) -> dict[str, object]:
    """What a verification of a chain found: gates and checks, suspects, pins, images, errors of nodes and outputs.

    Args:
        verdict, details: the content of verdict.json and details.json; either may be empty.
        folder: where the images lie that `details` names.
    """
    found = [each for each in verdict.get("findings", []) if each.get("check") != ""]
    place: Location = verdict.get("place") or {}
    return {
        "findings": sorted(found, key=lambda finding: "gate" not in finding),
        "detects": any(finding.get("gate") == "matched_fraction_min" for finding in found),
        "suspects": place.get("suspects", []),
        "suggestion": verdict.get("suggestion"),
        "images": [_image(folder, item) for item in details.get("images", [])],
        "node_errors": _node_errors(details.get("profile") or []),
        "no_profile": details.get("no_profile", ""),
        "histograms": _histograms(details.get("stages", {})),
    }


def kept_in_fp32(decisions: Sequence[JsonObject]) -> dict[str, object]:
    """Nodes that stay FP32, by the rule that keeps them and each with its reason.

    Args:
        decisions: rows of the conversion: {node, op, precision, rule, reason}.
    """
    kept = [row for row in decisions if row.get("precision") == "fp32"]
    rules: dict[str, int] = {}
    for row in kept:
        rules[str(row.get("rule"))] = rules.get(str(row.get("rule")), 0) + 1
    return {
        "total": len(decisions),
        "fp32": len(kept),
        "rules": rules,
        "rows": kept[:_LISTED],
        "omitted": max(0, len(kept) - _LISTED),
    }


def _node_errors(profile: Sequence[NodeRow]) -> dict[str, Any] | None:
    from markupsafe import Markup

    rows: list[NodeError] = [
        {**row, "local_error": _error(row["local_error"]), "error": _error(row["error"])} for row in profile
    ]
    if not rows:
        return None
    worst = sorted((i for i, row in enumerate(rows) if row.get("rank")), key=lambda i: rows[i].get("rank") or 0)
    return {
        "wide": Markup(error_chart(rows, worst, 1080, 380, titles=True)),
        "narrow": Markup(error_chart(rows, worst, 400, 320, titles=False)),
        "worst": [rows[i] for i in worst],
        "nodes": len(rows),
        "exact": sum(row["local_error"] == 0 for row in rows),
        "nonfinite": sum(not math.isfinite(row["error"]) for row in rows),
    }


def _error(value: float | None) -> float:
    """A profile says None where an error is not finite."""
    return math.inf if value is None else float(value)


def _histograms(stages: Mapping[str, MeasuredStage]) -> list[dict[str, Any]]:
    """One per output: the final file as bars, the FP32 file before conversion as an outline."""
    from markupsafe import Markup

    measured: list[MeasuredStage] = [stages.get(name) or {} for name in ("cast_cleanup", "slim")]
    final, before = (stage.get("histograms", {}) for stage in measured)
    found = []
    for name, data in final.items():
        series = [("final file", ORANGE, data)] + ([("FP32 file", BLUE, before[name])] if name in before else [])
        svg = histogram(series)
        found.append({"output": name, "svg": Markup(svg) if svg else None, **data})
    return found


def _image(folder: Path, item: JsonObject) -> dict[str, Any]:
    encoded = base64.b64encode((folder / str(item["file"])).read_bytes()).decode()
    return dict(item) | {"uri": f"data:image/png;base64,{encoded}"}
