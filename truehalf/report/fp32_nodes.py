"""Section on what stays FP32: a map by module, and of each module its FP32 nodes by rule, with their neighbourhood."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from truehalf.report.forms import Decision
from truehalf.report.graph import FP32, Node, islands
from truehalf.report.module_map import SHADES, Module, module_map, modules, trunk
from truehalf.report.neighbourhood import neighbourhood

_LISTED = 400  # nodes
_DRAWN = 40  # islands
_WIDE, _NARROW = (1080, 7), (370, 5)  # width of the map, and rows below its first
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


def kept_in_fp32(
    decisions: Sequence[Decision], nodes: Sequence[Node] = (), errors: Mapping[str, float] | None = None
) -> Mapping[str, object]:
    """{total, fp32, rules, modules, omitted} and, where `nodes` are known, {map}.

    Args:
        decisions: rows of the conversion.
        nodes: of the final file.
        errors: relative error that a node makes by itself, by name.
    """
    kept = [row for row in decisions if row.get("precision") == FP32]
    drawings = _drawings(nodes)
    scopes = _by(kept, lambda row: str(row.get("scope") or ""))
    found: list[dict[str, Any]] = [
        {
            "id": f"fp32-{number}",
            "scope": scope or "outside of any module",
            "count": len(rows),
            "rules": _rules(rows),
            "drawings": drawings.get(scope, []),
        }
        for number, (scope, rows) in enumerate(_first(scopes).items(), start=1)
    ]
    links = {str(module["scope"]): f"#{module['id']}" for module in found}
    root = modules(nodes, errors or {})
    return {
        "total": len(decisions),
        "fp32": len(kept),
        "rules": dict(Counter(str(row.get("rule")) for row in kept).most_common()),
        "modules": found,
        "omitted": len(kept) - sum(module["count"] for module in found),
        "map": _maps(root, links) if root.flops else None,
        "trunk": trunk(root).scope,
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


def _drawings(nodes: Sequence[Node]) -> dict[str, list[Any]]:
    """Of each FP32 island its neighbourhood, by the module that its first node is in."""
    found: dict[str, list[Any]] = {}
    for island in islands(nodes)[:_DRAWN]:
        found.setdefault(nodes[island[0]]["scope"], []).append(Markup(neighbourhood(nodes, island)))
    return found


def _maps(root: Module, links: Mapping[str, str]) -> dict[str, Any]:
    addresses = _inherited(root, links)
    wide, narrow = (Markup(module_map(root, *size, addresses)) for size in (_WIDE, _NARROW))
    return {"wide": wide, "narrow": narrow, "shades": SHADES}


def _inherited(module: Module, links: Mapping[str, str]) -> dict[str, str]:
    """Addresses, also of modules that only hold others with FP32 nodes: of the first of those."""
    found = {scope: address for each in module.inner.values() for scope, address in _inherited(each, links).items()}
    own = links.get(module.scope) or next(iter(found.values()), None)
    return found | ({module.scope: own} if own else {})
