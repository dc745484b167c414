"""The one page of a result: sections from a template, each there when there is something to say.

A page loads nothing, runs nothing and holds no date, so it opens anywhere and equal results give an equal file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypedDict

from markupsafe import Markup

from truehalf.config.verification import GatesConfig
from truehalf.json_values import JsonObject
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


class Details(TypedDict, total=False):
    """What the page reads of details.json."""

    images: list[JsonObject]
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


def verification_sections(report: JsonObject, details: Details, folder: Path) -> dict[str, object]:
    """What a verification of a chain found: gates and checks, suspects, pins, images.

    Args:
        report: JSON of truehalf.verification.report.Report; may be empty.
        details: the content of details.json; may be empty.
        folder: where the images lie that `details` names.
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
        "images": [_image(folder, item) for item in details.get("images", [])],
        "differing": sum(any(row.get(key) for key in _DIFFERS) for row in details.get("samples", [])),
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


def _image(folder: Path, item: JsonObject) -> dict[str, Any]:
    return dict(item) | {"svg": Markup((folder / str(item["file"])).read_text(encoding="utf-8"))}
