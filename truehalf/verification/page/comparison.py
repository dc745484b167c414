"""HTML page of a conversion or a comparison of two files, in one self-contained file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from truehalf.errors import StageError
from truehalf.verification.page.page import number, percent

_TEMPLATES = Path(__file__).parent


def comparison_page(content: Any, named: str = "the result") -> str:
    """The page of a result.

    Args:
        content: JSON of `truehalf convert --json` or `truehalf verify --json`.
        named: how messages call it.

    Raises:
        StageError: when it is neither.
    """
    import jinja2

    if not isinstance(content, Mapping) or not {"conversion", "outputs"} & set(content):
        raise StageError("wrong-file", f"{named}: expected the JSON of `truehalf convert` or `verify`, it is neither")
    comparison = content.get("comparison") if "conversion" in content else content
    kept = [row for row in content.get("decisions", []) if row["precision"] == "fp32"]
    loader = jinja2.FileSystemLoader(_TEMPLATES)
    page = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    page.filters |= {"number": number, "percent": percent}
    rules = Counter(row["rule"] for row in kept).most_common()
    return page.get_template("comparison.html.j2").render(
        title=Path(content.get("out", named)).name,
        verdict=content["verdict"],
        content=content,
        conversion=content.get("conversion"),
        comparison=comparison,
        kept=kept,
        rules=rules,
    )
