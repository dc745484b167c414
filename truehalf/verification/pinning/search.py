"""The one search for pins: nodes that, kept FP32, bring a converted file inside its limits.

    rank      nodes by effect: how far the reference's outputs move when only this node is as the file has it
              (truehalf.verification.localize.effects); first those whose error rounding does not explain, last near
              ties, which no pin settles
    enough    convert with the first k as pins, and compare; k is doubled, then bisected
    prune     take out what the limits hold without: halves, quarters, ... single nodes

Every list that is returned was converted with, and held. With a TopK or ArgMax goes what makes its input: of a tensor
that float16 holds it chooses as before. `Attention` is never pinned, as TensorRT has no FP32 kernel for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from truehalf.calibration.instrument import main_values
from truehalf.ir.facts import is_op, name_of, with_subgraphs
from truehalf.verification.localize.align import source_node
from truehalf.verification.localize.both_files import BothFiles, with_makers
from truehalf.verification.localize.effects import effects_of
from truehalf.verification.localize.node_errors import WRONG, LocalError, local_errors
from truehalf.verification.pinning.as_argument import entry_of

Feeds = Mapping[str, np.ndarray]
Holds = Callable[[tuple[str, ...]], bool | None]
_SINGLE, _RUNS = 64, 96  # nodes whose effect is measured alone; runs of the reference for that
_SINGLE_PRECISION = 1e-6  # local error: FP32 makes as much of another order of operations
_PRUNING = 40  # conversions, to drop needless pins
_SLACK = 0.1  # share of the pins that may be needless before they are pruned
_NEVER = ("Attention", "MultiHeadAttention")


@dataclass(frozen=True)
class Pins:
    """Pins that were tried and hold.

    Attributes:
        nodes: names in the FP32 model, in the order of the graph; () where none hold.
        entries: of node_block_list, for these nodes and what is inside them.
        most_failed: the largest number of pins that was tried and does not hold.
        conversions: how many were tried.
        is_shortest: no pin can be left out.
    """

    nodes: tuple[str, ...]
    entries: tuple[str, ...]
    most_failed: int
    conversions: int
    is_shortest: bool


def search_pins(
    files: BothFiles, batches: Sequence[Feeds], queries: Collection[str], errors: Sequence[LocalError], holds: Holds
) -> Pins:
    """Search for the fewest pins.

    Args:
        files: the FP32 model, with the names that node_block_list is matched with, and what was made of it.
        batches: what it fails on.
        queries: outputs whose rows may come in any order.
        errors: see `all_errors`.
        holds: whether a file converted with these entries of node_block_list is good enough; None: they would leave too
            little of it in FP16.

    Raises:
        StageError: when a run or a conversion fails.
    """
    graph = files.reference.graph
    entries = {name_of(node): [entry_of(name_of(each)) for each in with_subgraphs(node)] for node in graph}
    trial = _Trial(entries, holds)
    order = ranked(files, batches, queries, errors)

    def first(count: int) -> list[str]:
        return list(dict.fromkeys(name for unit in order[:count] for name in unit))

    count = fewest(len(order), lambda count: trial.holds(first(count)) is not False, _SLACK)
    nodes: list[str] = first(count) if count else []
    if not nodes or trial.holds(nodes) is None:
        return Pins((), (), trial.most_failed, trial.conversions, False)
    pruned, is_shortest = _pruned(nodes, trial)
    kept = tuple(name for name in entries if name in pruned)
    return Pins(kept, trial.entries(kept), trial.most_failed, trial.conversions, is_shortest)


def all_errors(files: BothFiles, batches: Sequence[Feeds]) -> list[LocalError]:
    """Local errors of all tensors, each kept as the candidate computes it.

    Raises:
        StageError: as truehalf.verification.localize.node_errors.local_errors.
    """
    return local_errors(files, batches, keep=len(files.pairs))


def ranked(
    files: BothFiles, batches: Sequence[Feeds], queries: Collection[str], errors: Sequence[LocalError]
) -> list[tuple[str, ...]]:
    """Names of nodes of the reference that belong together, those first whose rounding moves the outputs most."""
    by_node: dict[ir.Node, list[LocalError]] = {}
    values = main_values(files.reference)
    for error in errors:
        node = source_node(values[error.pair.reference])
        if node is not None and not is_op(node, *_NEVER) and error.relative > _SINGLE_PRECISION:
            by_node.setdefault(node, []).append(error)
    nodes = list(by_node)
    ties = {i for i, node in enumerate(nodes) if any(error.is_choice for error in by_node[node])}
    settled = [i for i in range(len(nodes)) if i not in ties]
    effects = effects_of(files, batches, queries, [by_node[nodes[i]] for i in settled], single=_SINGLE, runs=_RUNS)
    effects.sort(key=lambda effect: -effect.error / math.sqrt(len(effect.nodes)))
    order = [settled[i] for effect in effects for i in effect.nodes]
    # What rounding explains moves the outputs of a network of near ties, too.
    order.sort(key=lambda i: all(error.relative < WRONG for error in by_node[nodes[i]]))
    order += sorted(ties)
    return [tuple(map(name_of, with_makers(nodes[i]))) for i in order]


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


class _Trial:
    """Conversions with pins, each list tried once."""

    def __init__(self, entries: Mapping[str, Sequence[str]], holds: Holds) -> None:
        self._entries, self._ask, self._known = entries, holds, dict[frozenset[str], bool | None]()
        self.most_failed = 0

    @property
    def conversions(self) -> int:
        return len(self._known)

    def entries(self, nodes: Sequence[str]) -> tuple[str, ...]:
        """Of a node, and of all nodes inside it."""
        return tuple(entry for node in nodes for entry in self._entries[node])

    def holds(self, nodes: Sequence[str]) -> bool | None:
        key = frozenset(nodes)
        if key not in self._known:
            self._known[key] = self._ask(self.entries(nodes))
            if self._known[key] is False:
                self.most_failed = max(self.most_failed, len(key))
        return self._known[key]


def _pruned(nodes: list[str], trial: _Trial) -> tuple[list[str], bool]:
    """What is left when no part can be taken out, the later ones first; and whether no single node can be."""
    last = trial.conversions + _PRUNING
    size = len(nodes) // 2
    while size:
        for start in reversed(range(0, len(nodes), size)):
            without = nodes[:start] + nodes[start + size :]
            if trial.conversions >= last:
                return nodes, False
            if without and trial.holds(without):
                nodes = without
        size //= 2
    return nodes, True
