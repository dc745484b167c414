"""Sensitivity to FP16: the error that goes away when a module, or a node, is computed in FP32.

    error_removed(S) = error(base) - error(base and S in FP32)

First everything is made FP32, then the modules at the top, then those inside the module that removes most, and so on;
then single nodes, those first whose module removes most for its size. One run of the switchboard for each. Where the
runs may not suffice for all nodes, half of them go to modules.

A single node in FP32 between FP16 neighbours still reads and writes rounded numbers; only its weights and what it
does inside become exact. So single nodes often remove nothing where their module removes everything. What rounds the
same as something measured before (Switchboard.effect) costs no run.
"""

from __future__ import annotations

import hashlib
import heapq
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from truehalf.errors import StageError
from truehalf.files import read_json, write_json

if TYPE_CHECKING:
    from truehalf.verification.pinning.switchboard import Feeds, Switchboard

Outputs = dict[str, np.ndarray]
Error = Callable[[Outputs], float]
_BASE, _ALL = "base", "all"


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


class SensitivityRow(TypedDict, total=False):
    """What one group, or node, in FP32 does to the error."""

    group: str
    node: str
    nodes: int
    error: float
    error_removed: float
    runs: int


@dataclass(frozen=True)
class Sensitivity:
    """What was measured.

    Attributes:
        base_error: of the base set; `all_fp32_error`: with every node in FP32. Inf where the error function gave NaN.
        rows: in the order of measuring, {"group": scope} or {"node": name}, and nodes (how many become FP32), error,
            error_removed (may be Inf or negative) and runs (used so far).
        runs: all runs, those of an earlier call that the checkpoint holds included.
        complete: every node was measured.
    """

    base_error: float
    all_fp32_error: float
    rows: list[SensitivityRow]
    runs: int
    complete: bool

    def worst(self, count: int = 10) -> list[SensitivityRow]:
        """The rows that remove most, the smaller one first among equals."""
        return sorted(self.rows, key=lambda row: (-row["error_removed"], row["nodes"]))[:count]


def sensitivity(
    board: Switchboard,
    feeds: Feeds,
    base: Collection[str],
    error: Error,
    *,
    runs: int,
    checkpoint: Path | None = None,
) -> Sensitivity:
    """Measure modules and nodes on top of a base set.

    Args:
        board: a switchboard of the FP32 model.
        feeds: arrays by input name, or a list of such.
        base: names of the nodes that are FP32 already, such as a converted file keeps.
        error: of a run's outputs; the smaller the better, NaN counts as Inf.
        runs: how many runs may be used, 2 or more; as many as nodes and modules measure everything.
        checkpoint: a JSON file that is written after each run and read at the start, so that a call that was killed
            goes on. It belongs to one model, feeds, base and error function (by name); another one's starts anew.

    Raises:
        StageError: when a run fails, `runs` is below 2, or `base` names a node that the model does not have.
    """
    if runs < 2:
        raise StageError(
            "out-of-range",
            f"sensitivity: expected a budget of 2 runs or more (the base, everything in FP32), got {runs}",
        )
    meter = Meter(board, feeds, frozenset(base), error, runs, checkpoint)
    base_error, all_error = meter.error(_BASE, ()), meter.error(_ALL, board.nodes)
    whole = grouped(board, base)
    rows: list[SensitivityRow] = []

    def measure(kind: str, name: str, nodes: tuple[str, ...]) -> float:
        value = meter.error(f"{kind}:{name}", nodes)
        removed = error_removed(base_error, value)
        row: SensitivityRow = {"group": name} if kind == "group" else {"node": name}
        rows.append({**row, "nodes": len(nodes), "error": value, "error_removed": removed, "runs": meter.used})
        return removed

    for_groups = max(meter.left // 2, meter.left - len(whole.nodes))
    waiting: list[tuple[float, int, Group]] = [(0.0, 0, whole)]
    shares = dict.fromkeys(whole.nodes, 0.0)  # by node, what its innermost measured module removes for each node
    count, complete = 0, True
    while waiting:
        _, _, group = heapq.heappop(waiting)
        for part in group.inner:
            if count == for_groups:
                complete = False
                break
            count += 1
            removed = measure("group", part.scope, part.nodes)
            shares.update(dict.fromkeys(part.nodes, removed / len(part.nodes)))
            heapq.heappush(waiting, (-removed, count, part))
    for node in sorted(whole.nodes, key=lambda node: -shares[node]):
        if not meter.left:
            complete = False
            break
        measure("node", node, (node,))
    return Sensitivity(base_error, all_error, rows, meter.used, complete)


def error_removed(before: float, after: float) -> float:
    """before - after, where nothing is removed between two errors that are both infinite."""
    return 0.0 if before == after else before - after


def grouped(board: Switchboard, base: Collection[str] = ()) -> Group:
    """The modules of a model as a tree, without the nodes of the base."""
    known = frozenset(base)
    root = _Branch()
    for node in board.nodes:
        if node not in known:
            branch = root
            for part in filter(None, board.scopes[node].split(".")):
                branch.nodes.append(node)
                branch = branch.inner.setdefault(part, _Branch())
            branch.nodes.append(node)
            branch.direct.append(node)
    return _group("", root)


@dataclass
class _Branch:
    nodes: list[str] = field(default_factory=list)
    direct: list[str] = field(default_factory=list)
    inner: dict[str, _Branch] = field(default_factory=dict)


def _group(scope: str, branch: _Branch) -> Group:
    parts = [_group(f"{scope}.{name}" if scope else name, part) for name, part in branch.inner.items()]
    if len(parts) == 1 and len(parts[0].nodes) == len(branch.nodes):
        only = parts[0]
        return Group(scope or only.scope, only.nodes, only.direct, only.inner)
    return Group(scope, tuple(branch.nodes), tuple(branch.direct), tuple(parts))


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
    """Errors by label, each measured once, as long as there are runs left."""

    def __init__(
        self,
        board: Switchboard,
        feeds: Feeds,
        base: frozenset[str],
        error: Error,
        runs: int,
        checkpoint: Path | None = None,
    ) -> None:
        self.board, self.feeds, self.base, self.function = board, feeds, base, error
        self.budget, self.used = runs, 0
        self.checkpoint = checkpoint
        self._key = _key(board, feeds, base, error) if checkpoint is not None else ""
        self._known = self._read()
        self._effects: dict[bytes, float] = {}

    @property
    def left(self) -> int:
        return self.budget - self.used

    def error(self, label: str, nodes: Iterable[str]) -> float:
        fp32 = self.base.union(nodes)
        effect = self.board.effect(fp32)
        if effect not in self._effects:
            if label not in self._known:
                value = float(self.function(self.board.run(self.feeds, fp32)))
                self._known[label] = math.inf if math.isnan(value) else value
                if self.checkpoint is not None:
                    write_json(self.checkpoint, {"key": self._key, "errors": self._known})
            self._effects[effect] = self._known[label]
            self.used += 1
        return self._effects[effect]

    def _read(self) -> dict[str, float]:
        if self.checkpoint is None or not self.checkpoint.exists():
            return {}
        content = read_json(self.checkpoint)
        if not isinstance(content, Mapping) or content.get("key") != self._key:
            return {}
        return {str(label): float(value) for label, value in content["errors"].items()}


def _key(board: Switchboard, feeds: Feeds, base: frozenset[str], error: Error) -> str:
    digest = hashlib.sha256(board.digest.encode())
    digest.update(getattr(error, "__qualname__", type(error).__qualname__).encode())
    for name in sorted(base):
        digest.update(name.encode() + b"\0")
    for one in [feeds] if isinstance(feeds, Mapping) else feeds:
        for name, array in sorted(one.items()):
            digest.update(f"\0{name} {array.dtype} {array.shape}\0".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
