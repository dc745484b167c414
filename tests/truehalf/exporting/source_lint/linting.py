"""The rules that are found in a module's source."""

from __future__ import annotations

from typing import Any

from truehalf.exporting.source_lint import lint_source


def rules(module: Any) -> list[str]:
    return sorted(finding.rule for finding in lint_source(module))
