"""Section on what stays FP32: of each module its FP32 nodes by rule, and its islands of connected ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from truehalf.errors import some_of
from truehalf.report.graph import FP32, Node, islands
from truehalf.report.text import Screen, listed

if TYPE_CHECKING:
    from truehalf.conversion.report import Decision

_LISTED = 400  # nodes
_ISLANDS = 40
RULES = {  # words after a number of nodes, and a sentence for readers who do not know the rule
    "declared": ("marked by the exporter or a repair", "the exporter or a repair marks them"),
    "placement": (
        "cheaper in FP32 than with casts",
        "FP16 is allowed, but the casts around it would cost more than FP16 saves",
    ),
    "data_max": ("with values near FP16's limit", "values come near to what FP16 can hold"),
    "safety_factor": ("with values near FP16's limit", "values come near to what FP16 can hold"),
    "init_max": ("with constants beyond FP16", "a constant is beyond what FP16 can hold"),
    "inner": ("whose inner sums exceed FP16", "their sums inside exceed what FP16 can hold"),
    "measured": ("that a check on samples pinned", "with them in FP16 a check on samples did not pass"),
    "op_block_list": ("by op_block_list", "their operator is listed in precision.op_block_list"),
    "node_block_list": ("by node_block_list", "their name is listed in precision.node_block_list"),
    "scope_block_list": ("by scope_block_list", "their module is listed in precision.scope_block_list"),
    "pattern_block_list": (
        "by pattern_block_list",
        "they are part of a pattern listed in precision.pattern_block_list",
    ),
}


def rule_words(rule: str) -> str:
    """A rule in words that need no table, such as "cheaper in FP32"."""
    return RULES[rule][0] if rule in RULES else f"by {rule}"


def fp32_lines(decisions: Sequence[Decision], screen: Screen) -> list[str]:
    """For the terminal: how many nodes stay FP32, by rule; with --verbose each node with its reason."""
    kept = [row for row in decisions if row["precision"] == FP32]
    lines = [screen.labelled("in FP32", f"{len(kept)} of {len(decisions)} nodes")]
    rules = Counter(row["rule"] for row in kept).most_common()
    reasons = [f"{rule} {nodes}: {RULES[rule][1]}" if rule in RULES else f"{rule} {nodes}" for rule, nodes in rules]
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
    connected: dict[str, list[str]] = {}  # by the module of an island's first node
    for island in islands(nodes)[:_ISLANDS]:
        connected.setdefault(nodes[island[0]]["scope"], []).append(some_of(nodes[i]["op"] for i in island))
    modules: list[dict[str, object]] = []
    room = _LISTED
    for scope, rows in _by("scope", kept).items():
        if modules and len(rows) > room:  # whole modules, as many as have room
            continue
        named, shown = scope or "outside of any module", rows[:_LISTED]
        rules = [_worded(rule) | {"reasons": _by("reason", group)} for rule, group in _by("rule", shown).items()]
        modules.append({"scope": named, "count": len(shown), "rules": rules, "islands": connected.get(scope, [])})
        room -= len(shown)
    return {
        "total": len(decisions),
        "fp32": len(kept),
        "rules": sorted((_worded(rule) | {"count": len(rows)} for rule, rows in _by("rule", kept).items()), key=_fewer),
        "modules": modules,
        "omitted": len(kept) - (_LISTED - room),
    }


def _by(key: Literal["scope", "rule", "reason"], rows: Iterable[Decision]) -> dict[str, list[Decision]]:
    groups: dict[str, list[Decision]] = {}
    for row in rows:
        groups.setdefault(str(row.get(key) or ""), []).append(row)
    return groups


def _worded(rule: str) -> dict[str, Any]:
    return {"rule": rule, "says": RULES[rule][1] if rule in RULES else ""}


def _fewer(row: Mapping[str, Any]) -> int:
    return -int(row["count"])
