"""The shortest list of further pins that brings a file inside its gates: greedy by the error of parts, then pruned.

    1. Parts of the model are ranked by the error for each of their nodes (truehalf.verification.pinning.ranking), and
       made FP32, the first ones together, until the gates hold.
    2. What the gates hold without is taken out again: modules first, then what is inside those that are needed, then
       one node after the other until none can go.
    3. Nodes that make up all of a module become one entry, its scope, which is tried without as well.

What holds together may not hold apart, so the list is the shortest in this sense: none of its entries can be dropped.
Nothing is applied here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from truehalf.verification.pinning.as_argument import entry_of
from truehalf.verification.pinning.meter import Error, Group, Meter, Outputs, grouped, names_only, parts
from truehalf.verification.pinning.ranking import Part, ranked

if TYPE_CHECKING:
    from truehalf.verification.pinning.switchboard import Feeds, Switchboard

RUNS = 600
_MEASURED = 8  # runs for each part, of which each is measured once, and what it was part of


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
        board, feeds, base, error: see truehalf.verification.pinning.meter.Meter.
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
    meter = Meter(board, feeds, trial.base, error)
    order = ranked(meter, dict.fromkeys(free, 1), max(1, runs // _MEASURED))
    trial.used += meter.used
    whole = grouped(board, base)
    kept = _pruned(_greedy(order, trial), whole, trial)
    scopes = _whole_modules(kept, board, whole)
    while (spare := next((scope for scope in scopes if trial.holds(_without(kept, scopes[scope]))), None)) is not None:
        kept = _pruned(_without(kept, scopes[spare]), whole, trial)
        scopes = _whole_modules(kept, board, whole)
    covered = {node for nodes in scopes.values() for node in nodes}
    pinned = set(kept)
    return Suggestion(
        node_block_list=[entry_of(node) for node in board.nodes if node in pinned - covered],
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


def _greedy(order: Sequence[Part], trial: _Trial) -> list[str]:
    """Nodes of the fewest first parts with which the gates hold."""

    def first(count: int) -> list[str]:
        return [node for part in order[:count] for node in part.nodes]

    return first(fewest(len(order), lambda count: trial.holds(first(count))) or len(order))


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
