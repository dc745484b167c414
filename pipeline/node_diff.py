"""Two runs node by node: which nodes have another precision, and what each run says of why."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from pipeline.compared_runs import ComparedRun, NothingToCompare


@dataclass(frozen=True)
class NodeChange:
    """A node of another precision in the second run; a side that does not have the node is "absent"."""

    node: str
    op: str
    scope: str
    before: str
    after: str
    why: str


def changes(first: ComparedRun, second: ComparedRun) -> list[NodeChange]:
    """Nodes of another precision, in the order of the second run's graph, then those that only the first one has.

    Raises:
        NothingToCompare: where both runs decided nothing.
    """
    told = [run.decisions() for run in (first, second)]
    if told == [None, None]:
        both = f"neither {first.name} nor {second.name}"
        raise NothingToCompare(f"{both} decided over nodes: each is FP32, or traced in FP16")
    before, after = ({decision["node"]: decision for decision in each or []} for each in told)
    found = []
    for node in [*after, *(node for node in before if node not in after)]:
        was, is_now = _precision(told[0] is None, before, node), _precision(told[1] is None, after, node)
        if was == is_now:
            continue
        shown = after.get(node) or before[node]
        kept = next((side[node] for side in (after, before) if side.get(node, {}).get("precision") == "fp32"), shown)
        why = f"{kept['rule']}: {kept['reason']}" if kept.get("reason") else str(kept["rule"])
        found.append(NodeChange(node, shown["op"], shown.get("scope") or "", was, is_now, why))
    return found


def _precision(passed_on: bool, decisions: dict[str, dict[str, Any]], node: str) -> str:
    """Of a node; a run that decided nothing has passed the FP32 file on."""
    if passed_on:
        return "fp32"
    return str(decisions[node]["precision"]) if node in decisions else "absent"


def summary(found: list[NodeChange]) -> list[tuple[str, int]]:
    """How many nodes changed from what to what, by operator, the most first."""
    counted = Counter(f"{change.before} -> {change.after}: {change.op}" for change in found)
    return sorted(counted.items(), key=lambda item: (-item[1], item[0]))
