"""Modules of a switchboard as a tree, and errors of its runs, each measured once."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from truehalf.verification.pinning.switchboard import Feeds, Switchboard

Outputs = dict[str, np.ndarray]
Error = Callable[[Outputs], float]


@dataclass(frozen=True)
class Group:
    """The switched nodes of a module that are not in the base.

    Attributes:
        scope: dotted module path, "" for the whole model.
        nodes: names, in graph order, those of inner modules included.
        direct: those that lie in no inner module.
        inner: modules inside, in graph order; one that holds all nodes of this one is passed over.
    """

    scope: str
    nodes: tuple[str, ...]
    direct: tuple[str, ...]
    inner: tuple[Group, ...]


def grouped(board: Switchboard, base: Collection[str] = ()) -> Group:
    """The modules of a model as a tree, without the nodes of the base."""
    known = frozenset(base)
    nodes = [node for node in board.nodes if node not in known]
    return _group("", nodes, {node: [part for part in board.scopes[node].split(".") if part] for node in nodes})


def _group(scope: str, nodes: Sequence[str], paths: Mapping[str, Sequence[str]]) -> Group:
    """Of nodes in a module; `paths` has the modules inside it that hold each, the outermost first."""
    direct, inner = [node for node in nodes if not paths[node]], dict[str, list[str]]()
    for node in nodes:
        if paths[node]:
            inner.setdefault(paths[node][0], []).append(node)
    parts = [
        _group(f"{scope}.{name}" if scope else name, held, {node: paths[node][1:] for node in held})
        for name, held in inner.items()
    ]
    if len(parts) == 1 and not direct:
        return replace(parts[0], scope=scope or parts[0].scope)
    return Group(scope, tuple(nodes), tuple(direct), tuple(parts))


def parts(group: Group) -> list[Group]:
    """The modules inside, and the nodes beside them; of a group of nodes, two parts; of one node, nothing."""
    if group.inner:
        return [*group.inner, *([Group("", group.direct, group.direct, ())] if group.direct else [])]
    if len(group.nodes) < 2:
        return []
    middle = (len(group.nodes) + 1) // 2
    return [Group("", half, half, ()) for half in (group.nodes[:middle], group.nodes[middle:])]


def names_only(group: Group, board: Switchboard) -> bool:
    """Whether a scope selector, which may begin at any component, matches just this module."""
    if not group.scope or "*" in group.scope:
        return False
    matched = [scope for scope in set(board.scopes.values()) if f".{group.scope}." in f".{scope}."]
    return all(f"{scope}.".startswith(f"{group.scope}.") for scope in matched)


class Meter:
    """Errors, each measured once: what rounds the same as something before (Switchboard.effect) costs no run.

    Attributes:
        board: of the FP32 model.
        base: names of the nodes that are FP32 in any case.
        used: runs.
    """

    def __init__(self, board: Switchboard, feeds: Feeds, base: frozenset[str], error: Error) -> None:
        """Measure on some feeds.

        Args:
            feeds: arrays by input name, or a list of such.
            error: of a run's outputs; the smaller the better, NaN counts as Inf.
        """
        self.board, self.feeds, self.base, self.function, self.used = board, feeds, base, error, 0
        self._known: dict[str, float] = {}

    def error(self, nodes: Iterable[str]) -> float:
        """With these nodes and the base in FP32.

        Raises:
            StageError: when the run fails, or the model has no such node.
        """
        fp32 = self.base.union(nodes)
        effect = hashlib.sha256(self.board.effect(fp32)).hexdigest()
        if effect not in self._known:
            value = float(self.function(self.board.run(self.feeds, fp32)))
            self._known[effect] = math.inf if math.isnan(value) else value
            self.used += 1
        return self._known[effect]
