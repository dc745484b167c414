"""Two runs node by node: which nodes have another precision, and what each run says of why."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.compare.compared_runs import ComparedRun, NothingToCompare
from truehalf.codes import coded
from truehalf.errors import some_of
from truehalf.report.forms import Decision


@dataclass(frozen=True)
class NodeChange:
    """A node of another precision in the second run; a side that does not have the node is "absent"."""

    node: str
    op: str
    before: str
    after: str
    why: str


def changes(first: ComparedRun, second: ComparedRun) -> list[NodeChange]:
    """Nodes of another precision, in the order of the second run's graph, then those that only the first one has.

    Raises:
        NothingToCompare: where both runs decided nothing, or one crashed before it could.
    """
    decided = [run.decisions() for run in (first, second)]
    for run, decisions in zip((first, second), decided, strict=True):
        if decisions is None and run.verdict == "crashed":
            message = f"{run.name} crashed before it had decided over nodes ({run.reason})"
            raise NothingToCompare(coded("no-decisions", message))
    if decided == [None, None]:
        both = f"neither {first.name} nor {second.name}"
        message = f"{both} decided over nodes: each is FP32, or traced in FP16"
        raise NothingToCompare(coded("no-decisions", message))
    before, after = ({decision["node"]: decision for decision in each or []} for each in decided)
    whole = first if decided[0] is None else second if decided[1] is None else None
    found = []
    for node in [*after, *(node for node in before if node not in after)]:
        was, is_now = _precision(decided[0] is None, before, node), _precision(decided[1] is None, after, node)
        if was == is_now:
            continue
        sides = [side[node] for side in (after, before) if node in side]
        why = f"{whole.name} is FP32 as a whole" if whole else _why(sides)
        found.append(NodeChange(node, sides[0]["op"], was, is_now, why))
    return found


def _why(sides: list[Decision]) -> str:
    """What the side says that keeps the node FP32, the second run's first."""
    kept = next((side for side in sides if side["precision"] == "fp32"), sides[0])
    return f"{kept['rule']}: {kept['reason']}" if kept.get("reason") else str(kept["rule"])


def _precision(passed_on: bool, decisions: dict[str, Decision], node: str) -> str:
    """Of a node; a run that decided nothing has passed the FP32 file on."""
    if passed_on:
        return "fp32"
    return str(decisions[node]["precision"]) if node in decisions else "absent"


def summary(found: list[NodeChange]) -> list[tuple[int, str, str]]:
    """How many nodes changed from one precision to another by one rule, and some of them; the most first."""
    grouped: dict[tuple[str, str, str], list[NodeChange]] = {}
    for change in found:
        grouped.setdefault((change.before, change.after, change.why.partition(": ")[0]), []).append(change)
    shown = []
    for (before, after, rule), nodes in grouped.items():
        why = {node.why for node in nodes}
        reason = why.pop() if len(why) == 1 else f"{rule}, for {len(why)} reasons"
        some = some_of(f"{node.node} ({node.op})" for node in nodes)
        shown.append((len(nodes), f"{before} -> {after}: {reason}", some))
    return sorted(shown, key=lambda item: (-item[0], item[1]))
