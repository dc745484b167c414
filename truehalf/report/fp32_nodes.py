"""Section on what stays FP32: of each module its FP32 nodes by rule, and its islands of connected ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from truehalf.errors import some_of
from truehalf.report.forms import Decision
from truehalf.report.graph import FP32, Node, islands

_LISTED = 400  # nodes
_ISLANDS = 40
_RULES = {  # what a rule says, for whom has not read of it
    "declared": "the exporter or a repair marks them",
    "op_block_list": "their operator is listed in precision.op_block_list",
    "node_block_list": "their name is listed in precision.node_block_list",
    "scope_block_list": "their module is listed in precision.scope_block_list",
    "pattern_block_list": "they are part of a pattern listed in precision.pattern_block_list",
    "placement": "FP16 is allowed, but FP32 needs fewer casts there",
    "data_max": "values come near to what FP16 can hold",
    "init_max": "a constant is beyond what FP16 can hold",
}


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
        "rules": dict(Counter(str(row.get("rule")) for row in kept).most_common()),
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
        {"rule": rule, "says": _RULES.get(rule, ""), "reasons": _by(nodes, lambda row: str(row.get("reason") or ""))}
        for rule, nodes in _by(rows, lambda row: str(row.get("rule"))).items()
    ]


def _islands(nodes: Sequence[Node]) -> dict[str, list[str]]:
    """The operators of each FP32 island, by the module that its first node is in."""
    found: dict[str, list[str]] = {}
    for island in islands(nodes)[:_ISLANDS]:
        found.setdefault(nodes[island[0]]["scope"], []).append(some_of(nodes[i]["op"] for i in island))
    return found
