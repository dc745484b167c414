"""Section on what stays FP32: of each module its FP32 nodes by rule, and its islands of connected ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from truehalf.errors import some_of
from truehalf.report.graph import FP32, Node, islands
from truehalf.report.text import Screen, listed

if TYPE_CHECKING:
    from truehalf.conversion.report import Decision

_LISTED = 400  # nodes
_ISLANDS = 40
_IN_WORDS = {  # after a number of nodes
    "declared": "marked by the exporter or a repair",
    "placement": "cheaper in FP32 than with casts",
    "data_max": "with values near FP16's limit",
    "safety_factor": "with values near FP16's limit",
    "init_max": "with constants beyond FP16",
    "inner": "whose inner sums exceed FP16",
    "op_block_list": "by op_block_list",
}
RULES = {  # what a rule says, for whom has not read of it
    "declared": "the exporter or a repair marks them",
    "op_block_list": "their operator is listed in precision.op_block_list",
    "node_block_list": "their name is listed in precision.node_block_list",
    "scope_block_list": "their module is listed in precision.scope_block_list",
    "pattern_block_list": "they are part of a pattern listed in precision.pattern_block_list",
    "placement": "FP16 is allowed, but the casts around it would cost more than FP16 saves",
    "data_max": "values come near to what FP16 can hold",
    "init_max": "a constant is beyond what FP16 can hold",
}


def rule_words(rule: str) -> str:
    """A rule in words that need no table, such as "cheaper in FP32"."""
    return _IN_WORDS.get(rule, f"by {rule}")


def fp32_lines(decisions: Sequence[Decision], screen: Screen) -> list[str]:
    """For the terminal: how many nodes stay FP32, by rule; with --verbose each node with its reason."""
    kept = [row for row in decisions if row["precision"] == FP32]
    lines = [screen.labelled("in FP32", f"{len(kept)} of {len(decisions)} nodes")]
    rules = Counter(row["rule"] for row in kept).most_common()
    reasons = [f"{rule} {nodes}: {RULES[rule]}" if rule in RULES else f"{rule} {nodes}" for rule, nodes in rules]
    lines += [listed(reason, screen.width) for reason in screen.first(reasons)]
    if screen.is_verbose:
        lines += [f"  {row['node']} ({row['op']}): {row['rule']}: {row['reason']}" for row in kept]
    return lines


def kept_in_fp32(decisions: Sequence[Decision], nodes: Sequence[Node] = ()) -> Mapping[str, object]:
    """{total, fp32, rules, modules, omitted}; each module has scope, count, rules and islands.

    Args:
        decisions: rows of the conversion.
        nodes: of the final file, without which no island is known.
    """
    kept = [row for row in decisions if row.get("precision") == FP32]
    connected = _islands(nodes)
    scopes = _by(kept, lambda row: str(row.get("scope") or ""))
    found: list[dict[str, Any]] = [
        {
            "scope": scope or "outside of any module",
            "count": len(rows),
            "rules": _rules(rows),
            "islands": connected.get(scope, []),
        }
        for scope, rows in _first(scopes).items()
    ]
    return {
        "total": len(decisions),
        "fp32": len(kept),
        "rules": [
            {"rule": rule, "count": nodes, "says": RULES.get(rule, "")}
            for rule, nodes in Counter(str(row.get("rule")) for row in kept).most_common()
        ],
        "modules": found,
        "omitted": len(kept) - sum(module["count"] for module in found),
    }


def _by(rows: Iterable[Decision], key: Any) -> dict[str, list[Decision]]:
    found: dict[str, list[Decision]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


def _first(scopes: Mapping[str, list[Decision]]) -> dict[str, list[Decision]]:
    """Whole modules, as many as have room."""
    found: dict[str, list[Decision]] = {}
    for scope, rows in scopes.items():
        if not found or sum(map(len, found.values())) + len(rows) <= _LISTED:
            found[scope] = rows[:_LISTED]
    return found


def _rules(rows: Sequence[Decision]) -> list[dict[str, Any]]:
    return [
        {"rule": rule, "says": RULES.get(rule, ""), "reasons": _by(nodes, lambda row: str(row.get("reason") or ""))}
        for rule, nodes in _by(rows, lambda row: str(row.get("rule"))).items()
    ]


def _islands(nodes: Sequence[Node]) -> dict[str, list[str]]:
    """The operators of each FP32 island, by the module that its first node is in."""
    found: dict[str, list[str]] = {}
    for island in islands(nodes)[:_ISLANDS]:
        found.setdefault(nodes[island[0]]["scope"], []).append(some_of(nodes[i]["op"] for i in island))
    return found
