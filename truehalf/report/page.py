"""The one page of a result: sections from a template, each there when there is something to say.

A page loads nothing, runs nothing and holds no date, so it opens anywhere and equal results give an equal file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypedDict

from markupsafe import Markup

from truehalf.config.verification import GatesConfig
from truehalf.json_values import JsonObject
from truehalf.report.drawings import NodeRow, error_chart, error_of
from truehalf.report.graph import Node, stages
from truehalf.report.numbers import count, number, percent, precision

_TEMPLATE = Path(__file__).with_name("templates") / "page.html.j2"
_FILTERS: Mapping[str, Callable[..., str]] = {
    "number": number,
    "precision": precision,
    "percent": percent,
    "count": count,
}
# By gate what it measures; what rounding comes to stands behind the first semicolon, in docs.
_MEANINGS = {each.name: str(each.metadata["meaning"]).split("; ")[0] for each in fields(GatesConfig)}
_SUSPECTS = 5
_DIFFERS = ("missed", "extra", "label_flips", "nonfinite")
_UNKNOWN: Node = {"node": "", "op": "", "scope": "", "precision": "", "flops": 0.0, "reads": []}


class Details(TypedDict, total=False):
    """What the page reads of details.json."""

    images: list[JsonObject]
    profile: list[NodeRow] | None
    no_profile: str
    samples: list[JsonObject]


def page(content: Mapping[str, object]) -> str:
    """The page of what is known; a section without content is left out.

    Args:
        content: `title`, `headline` ({state: passed | failed | unknown, word, sentence, reasons}), and any of the
            sections.
    """
    from jinja2 import Environment, FileSystemLoader

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATE.parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= _FILTERS
    return environment.get_template(_TEMPLATE.name).render(content)


def verification_sections(
    report: JsonObject, details: Details, folder: Path, nodes: Sequence[Node] = ()
) -> dict[str, object]:
    """What a verification of a chain found: gates and checks, suspects, pins, images, errors of nodes and outputs.

    Args:
        report: JSON of truehalf.verification.report.Report; may be empty.
        details: the content of details.json; may be empty.
        folder: where the images lie that `details` names.
        nodes: of the final file.
    """
    shown: Any = report
    found = [each for each in shown.get("findings", []) if each.get("check") != ""]
    place = shown.get("place") or {}
    return {
        "findings": [
            dict(each) | {"used": used_up(each), "meaning": _MEANINGS.get(str(each.get("gate")), "")}
            for each in sorted(found, key=lambda each: "gate" not in each)
        ],
        "detects": any(finding.get("gate") == "matched_fraction_min" for finding in found),
        "suspects": place.get("suspects", [])[:_SUSPECTS],
        "culprit": place.get("sentence"),
        "fix": place.get("selectors"),
        "suggestion": report.get("suggestion"),
        "images": [_image(folder, item) for item in details.get("images", [])],
        "differing": sum(any(row.get(key) for key in _DIFFERS) for row in details.get("samples", [])),
        "node_errors": _node_errors(details.get("profile") or [], nodes),
        "no_profile": details.get("no_profile", ""),
    }


def used_up(finding: Mapping[str, Any]) -> float | None:
    """How much of a gate's limit is used up: 1 at the limit; None where that cannot be said.

    Of a least share, such as matched_fraction_min, what is missing of the whole counts.
    """
    value, limit, gate = finding.get("value"), finding.get("threshold"), str(finding.get("gate", ""))
    if not isinstance(value, (int, float)) or not isinstance(limit, (int, float)):
        return None
    if gate.endswith("_min"):
        value, limit = 1 - value, 1 - limit
    if limit < 0 or not math.isfinite(value):
        return None
    return max(0.0, value / limit) if limit else math.inf if value > 0 else 0.0


def _node_errors(rows: Sequence[NodeRow], nodes: Sequence[Node]) -> dict[str, Any] | None:
    if not rows:
        return None
    scopes = {node["node"]: node for node in nodes}
    bands = stages([scopes.get(row["node"], _UNKNOWN) for row in rows]) if nodes else []
    worst = sorted((i for i, row in enumerate(rows) if row.get("rank")), key=lambda i: rows[i].get("rank") or 0)
    local, run = [error_of(row["local_error"]) for row in rows], [error_of(row["error"]) for row in rows]
    return {
        "wide": Markup(error_chart(rows, worst, (1080, 390), bands)),
        "narrow": Markup(error_chart(rows, worst, (400, 330), bands, titles=False)),
        "worst": [{**rows[i], "local_error": local[i], "error": run[i]} for i in worst],
        "nodes": len(rows),
        "exact": local.count(0),
        "nonfinite": sum(not math.isfinite(error) for error in run),
    }


def _image(folder: Path, item: JsonObject) -> dict[str, Any]:
    return dict(item) | {"svg": Markup((folder / str(item["file"])).read_text(encoding="utf-8"))}
