"""Findings of the linter about one location of a graph."""

from __future__ import annotations

import dataclasses

from truehalf.json_values import JsonObject

SEVERITIES = ("error", "warning", "info")  # will not build; known to be wrong or slow; worth knowing


@dataclasses.dataclass(frozen=True)
class Finding:
    """One finding.

    Attributes:
        rule: its id, such as "grid-sample".
        severity: "error" (will not build), "warning" (known to be wrong or slow) or "info".
        node: name of the node, of the graph input or output, or of the initializer.
        op_type: of the node; "" where there is none.
        scope: dotted path of the module that the node was exported from.
        message: why it is a finding.
        remedy: what to write instead.
        link: the command that explains the rule.
        count: places that this finding stands for.
    """

    rule: str
    severity: str
    node: str
    op_type: str
    scope: str
    message: str
    remedy: str
    link: str
    count: int = 1

    def as_dict(self) -> JsonObject:
        return dataclasses.asdict(self)


def link_to(rule: str) -> str:
    """The command that prints what the documentation says of a rule."""
    return f"truehalf lint --explain {rule}"
