"""The shortest list of further pins that brings a file inside its gates: greedy on sensitivity, then pruned.

    1. Modules and nodes are measured (truehalf.verification.pinning.sensitivity), and made FP32 together, those first
       that remove most, until the gates hold. Where several errors each spoil everything, no single pin removes
       anything, and all nodes are made FP32.
    2. What the gates hold without is taken out again: modules first, then what is inside those that are needed, then
       one node after the other until none can go.
    3. Nodes that make up all of a module become one entry, its scope, which is tried without as well.

What holds together may not hold apart, so the list is the shortest in this sense: none of its entries can be dropped.
Nothing is applied here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from truehalf.verification.pinning.sensitivity import (
    Error,
    Group,
    Outputs,
    Sensitivity,
    grouped,
    names_only,
    parts,
    sensitivity,
)

if TYPE_CHECKING:
    from truehalf.verification.pinning.switchboard import Feeds, Switchboard

RUNS = 600


@dataclass(frozen=True)
class Suggestion:
    """Pins beside those of the base.

    Attributes:
        node_block_list: entries for precision.node_block_list, each the whole name of one node.
        scope_block_list: entries for precision.scope_block_list: modules of which every node is needed.
        nodes: the nodes that both lists pin, in graph order; empty when the gates hold as it is (minimal), and when the
            runs were used up before it was known whether any pin helps (not minimal).
        minimal: no entry can be dropped; False when the runs were used up before that was known.
        runs: of the switchboard.
    """

    node_block_list: list[str]
    scope_block_list: list[str]
    nodes: list[str]
    minimal: bool
    runs: int


def suggest(
    board: Switchboard,
    feeds: Feeds,
    base: Collection[str],
    error: Error,
    gates_hold: Callable[[Outputs], bool],
    *,
    runs: int = RUNS,
) -> Suggestion | None:
    """Find pins; None when the gates do not hold with every node in FP32 either.

    Args:
        board, feeds, base, error: as truehalf.verification.pinning.sensitivity.sensitivity.
        gates_hold: whether a run's outputs are good enough.
        runs: how many runs may be used: up to a quarter of them measure, the others search. When they are used up, the
            best list so far is returned, which may be empty.

    Raises:
        StageError: when a run fails, or `base` names a node that the model does not have.
    """
    trial = _Trial(board, feeds, frozenset(base), gates_hold, runs)
    if trial.holds(()):
        return Suggestion([], [], [], minimal=True, runs=trial.used)
    free = [node for node in board.nodes if node not in trial.base]
    if not trial.holds(free):
        return Suggestion([], [], [], minimal=False, runs=trial.used) if trial.refused else None
    measured = sensitivity(board, feeds, base, error, runs=max(2, runs // 4))
    trial.used += measured.runs
    whole = grouped(board, base)
    kept = _pruned(_greedy(measured, whole, trial), whole, trial)
    scopes = _whole_modules(kept, board, whole)
    while (spare := next((scope for scope in scopes if trial.holds(_without(kept, scopes[scope]))), None)) is not None:
        kept = _pruned(_without(kept, scopes[spare]), whole, trial)
        scopes = _whole_modules(kept, board, whole)
    covered = {node for nodes in scopes.values() for node in nodes}
    pinned = set(kept)
    return Suggestion(
        node_block_list=[f"^{re.escape(node)}$" for node in board.nodes if node in pinned - covered],
        scope_block_list=list(scopes),
        nodes=[node for node in board.nodes if node in pinned],
        minimal=not trial.refused,
        runs=trial.used,
    )


class _Trial:
    """Whether the gates hold, asked once of all sets of pins that come to the same (Switchboard.effect).

    Attributes:
        used: runs.
        refused: something was asked for that the budget did not allow; it counts as not holding.
    """

    def __init__(
        self,
        board: Switchboard,
        feeds: Feeds,
        base: frozenset[str],
        gates_hold: Callable[[Outputs], bool],
        runs: int,
    ) -> None:
        self.board, self.feeds, self.base, self.gates_hold = board, feeds, base, gates_hold
        self.budget, self.used, self.refused = runs, 0, False
        self._known: dict[bytes, bool] = {}

    def holds(self, nodes: Collection[str]) -> bool:
        fp32 = self.base.union(nodes)
        effect = self.board.effect(fp32)
        if effect not in self._known:
            if self.used >= self.budget:
                self.refused = True
                return False
            self.used += 1
            self._known[effect] = bool(self.gates_hold(self.board.run(self.feeds, fp32)))
        return self._known[effect]


# --- enough -----------------------------------------------------------------------------------------------------------


def _greedy(measured: Sensitivity, whole: Group, trial: _Trial) -> list[str]:
    """Nodes with which the gates hold, those of the most sensitive modules first."""
    members = {("group", group.scope): group.nodes for group in _all_groups(whole)}
    order: dict[str, None] = {}
    ends = []
    for row in measured.worst(len(measured.rows)):
        if row["error_removed"] <= 0:
            break
        nodes = (row["node"],) if "node" in row else members["group", row["group"]]
        if not order.keys() >= set(nodes):
            order.update(dict.fromkeys(nodes))
            ends.append(len(order))
    ranked = list(order)
    count = fewest(len(ends), lambda count: trial.holds(ranked[: ends[count - 1]]))
    return list(whole.nodes) if count is None else ranked[: ends[count - 1]]


def fewest(limit: int, holds: Callable[[int], bool], slack: float = 0.0) -> int | None:
    """The least of 1 to limit that holds, by doubling, then bisection; None where limit does not hold.

    Args:
        holds: asked of few numbers, of some twice.
        slack: the share of the answer, 0 to 1, by which it may be too large.
    """
    high = min(1, limit)
    while not high or not holds(high):
        if high == limit:
            return None
        high = min(2 * high, limit)
    low = high // 2
    while high - low > max(1, slack * high):
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _all_groups(group: Group) -> Iterator[Group]:
    yield group
    for part in group.inner:
        yield from _all_groups(part)


# --- no more than enough ----------------------------------------------------------------------------------------------


def _pruned(nodes: Sequence[str], whole: Group, trial: _Trial) -> list[str]:
    """What is left when no module, and in the end no single node, can be taken out."""
    kept = dict.fromkeys(nodes)

    def take_out(part: Group) -> None:
        inside = [node for node in part.nodes if node in kept]
        if not inside:
            return
        if trial.holds(_without(list(kept), inside)):
            for node in inside:
                del kept[node]
        elif len(inside) > 1:
            for inner in parts(part):
                take_out(inner)

    take_out(whole)
    before = None
    while before != len(kept):
        before = len(kept)
        for node in list(kept):
            if trial.holds(_without(list(kept), [node])):
                del kept[node]
    return list(kept)


def _without(nodes: Sequence[str], some: Collection[str]) -> list[str]:
    out = frozenset(some)
    return [node for node in nodes if node not in out]


def _whole_modules(kept: Sequence[str], board: Switchboard, whole: Group) -> dict[str, tuple[str, ...]]:
    """Modules of two nodes or more that are pinned as a whole, the largest ones, with their nodes."""
    pinned, found = set(kept), dict[str, tuple[str, ...]]()

    def look(group: Group) -> None:
        named = names_only(group, board)
        if named and len(group.nodes) > 1 and pinned.issuperset(group.nodes):
            found[group.scope] = group.nodes
        else:
            for part in group.inner:
                look(part)

    look(whole)
    return found
