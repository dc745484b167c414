"""Parts of a model by how much error FP16 puts into them for what FP32 would cost there.

    error(part) = error of the outputs with only this part in FP16, everything else in FP32
    rank(part)  = error(part) / cost(part)      cost: bytes that FP32 moves and computes more
    (truehalf.verification.pinning.fp32_costs)

The model is parted along its modules: what has the largest error times cost is parted again, until there are as many
parts as are asked for. Parts that overflow by themselves are infinitely wrong, and stand first. To keep the first k
parts FP32, for every k, is a walk from the cheapest file to the most exact one: greedy, as for a knapsack, where errors
accumulate.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from truehalf.verification.pinning.as_argument import entry_of
from truehalf.verification.pinning.meter import Group, Meter, grouped, names_only, parts


@dataclass(frozen=True)
class Part:
    """Some nodes of a model, that are in no other part.

    Attributes:
        scope: the module that they make up, "" where they are not all of one.
        nodes: names, in graph order.
        error: of the outputs with only this part in FP16, Inf where they are not finite.
        cost: bytes that FP32 costs more.
    """

    scope: str
    nodes: tuple[str, ...]
    error: float
    cost: int

    @property
    def rank(self) -> float:
        """The higher, the sooner it pays to keep it FP32."""
        return self.error / max(1, self.cost)

    @property
    def node_block_list(self) -> list[str]:
        """Entries of precision.node_block_list; none where the scope says it."""
        return [] if self.scope else [entry_of(node) for node in self.nodes]

    @property
    def scope_block_list(self) -> list[str]:
        """Entries of precision.scope_block_list."""
        return [self.scope] if self.scope else []


def ranked(meter: Meter, costs: Mapping[str, int], count: int) -> list[Part]:
    """Part the nodes that are not in the base, and sort the parts by rank, the highest first.

    Args:
        meter: of errors against everything in FP32, with the nodes that are FP32 in any case as its base.
        costs: bytes by node; one that has none costs nothing.
        count: at most so many parts, 1 or more.

    Raises:
        StageError: when a run fails, or `base` names a node that the model does not have.
    """
    whole = grouped(meter.board, meter.base)

    def measured(group: Group) -> Part:
        others = frozenset(whole.nodes).difference(group.nodes)
        scope = group.scope if names_only(group, meter.board) else ""
        return Part(scope, group.nodes, meter.error(others), sum(costs.get(node, 0) for node in group.nodes))

    ended: list[Part] = []
    open_: list[tuple[float, int, Group, Part]] = []
    number = 0

    def note(group: Group) -> None:
        nonlocal number
        part, number = measured(group), number + 1
        heapq.heappush(open_, (-_weight(part), number, group, part))

    if whole.nodes:
        note(whole)
    while open_:
        _, _, group, part = heapq.heappop(open_)
        inner = _parted(group, count - len(ended) - len(open_))
        for each in inner:
            note(each)
        if not inner:
            ended.append(part)
    return sorted(ended, key=lambda part: (-part.rank, part.cost))


def _parted(group: Group, most: int) -> list[Group]:
    """The parts of a group, or two joined parts where these are too many; nothing where two are."""
    inner = parts(group)
    if len(inner) <= most:
        return inner
    middle = (len(inner) + 1) // 2
    both = [inner[:middle], inner[middle:]]
    return [_joined(half) for half in both] if most >= 2 else []


def _joined(groups: Sequence[Group]) -> Group:
    if len(groups) == 1:
        return groups[0]
    return Group("", tuple(node for group in groups for node in group.nodes), (), tuple(groups))


def _weight(part: Part) -> float:
    """What there is to gain by parting it."""
    return math.inf if math.isinf(part.error) else part.error * part.cost
