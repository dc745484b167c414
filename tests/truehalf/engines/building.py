"""Engines by keywords: those of an order, of lint and of the options together."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

from truehalf.config.engine import EngineConfig
from truehalf.config.schema import FailOn, LintConfig
from truehalf.engines import build


def build_engine(model: Path, out: Path, **given: Any) -> dict[str, Any]:
    """The report as JSON.

    `given`: fields of Order and of EngineConfig, lint_ignore, lint_fail_on.
    """
    lint = LintConfig(given.pop("lint_ignore", []), FailOn(given.pop("lint_fail_on", "never")))
    order = {each.name: given.pop(each.name) for each in fields(build.Order) if each.name in given}
    return dict(build.build_engine(model, out, build.Order(lint=lint, **order), EngineConfig(**given)).to_json())
