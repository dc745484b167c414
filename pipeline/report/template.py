"""A page from a template: what is missing is an error, and text is escaped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def rendered(template: Path, filters: Mapping[str, Callable[..., str]], content: Mapping[str, Any]) -> str:
    """The page that a template makes of its content."""
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
