"""The one search for pins: nodes that, kept FP32, bring a converted file inside its limits.

    rank      nodes by effect: how far the reference's outputs move when only this node is as the file has it
              (truehalf.verification.localize.node_errors); first those whose error rounding does not explain, last what
              chooses among near ties
    enough    convert with the first k as pins, and compare; k is doubled, then bisected
    prune     take out what the limits hold without: halves, quarters, ... single nodes

Every list that is returned was converted with, and held; a search that runs out of processor time returns the best one
that it has. With a TopK or ArgMax goes what makes its input: of a tensor
that float16 holds it chooses as before. `Attention` is never pinned, as TensorRT has no FP32 kernel for it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from truehalf.calibration.instrument import main_values
from truehalf.ir.facts import is_op, name_of, with_subgraphs
from truehalf.verification.localize.both_files import BothFiles, source_node, with_makers
from truehalf.verification.localize.node_errors import WRONG, LocalError, effects_of
from truehalf.verification.pinning.as_argument import entry_of

Feeds = Mapping[str, np.ndarray]
_SINGLE, _RUNS = 64, 96  # nodes whose effect is measured alone; runs of the reference for that
_SINGLE_PRECISION = 1e-6  # local error: FP32 makes as much of another order of operations
_PRUNING = 40  # conversions, to drop needless pins
_SLACK = 0.1  # share of the pins that may be needless before they are pruned
_NEVER = ("Attention", "MultiHeadAttention")


@dataclass(frozen=True)
class Pins:
    """Pins that were tried and hold.

    Attributes:
        effects: by node, in the order of the graph, with nodes of bodies: how far the outputs move, as a share, where
            it alone is as the file has it. Empty where none hold.
        most_failed: the largest number of pins that was tried and does not hold.
        conversions: how many were tried.
        is_cut_short: processor time ran out.
    """

    effects: Mapping[str, float]
    most_failed: int
    conversions: int
    is_cut_short: bool

    @property
    def entries(self) -> tuple[str, ...]:
        """Entries of node_block_list that match these nodes."""
        return tuple(map(entry_of, self.effects))


def search_pins(
    files: BothFiles,
    batches: Sequence[Feeds],
    queries: Collection[str],
    errors: Sequence[LocalError],
    holds: Callable[[Collection[str]], bool | None],
    seconds: float,
) -> Pins:
    """Search for the fewest pins.

    Args:
        files: the FP32 model, with the names that node_block_list is matched with, and what was made of it.
        batches: what it fails on.
        queries: outputs whose rows may come in any order.
        errors: local errors of all tensors, each kept as the candidate computes it.
        holds: whether a file converted with these nodes in FP32 is good enough; None: they would leave too little of it
            in FP16.
        seconds: of processor time, after which nothing more is tried.

    Raises:
        StageError: when a run or a conversion fails.
    """
    nodes = {name_of(node): node for node in files.reference.graph}
    tried: dict[frozenset[str], bool | None] = {}
    end = time.process_time() + seconds

    def with_bodies(names: Collection[str]) -> list[str]:
        return [name_of(each) for name in names for each in with_subgraphs(nodes[name])]

    def is_late() -> bool:
        return time.process_time() > end

    def attempt(names: Collection[str]) -> bool | None:
        key = frozenset(names)
        if key not in tried:
            if is_late():
                return None
            tried[key] = holds(with_bodies(names))
        return tried[key]

    def first(count: int) -> list[str]:
        return list(dict.fromkeys(name for unit in order[:count] for name in unit))

    effects = ranked(files, batches, queries, errors)
    order = list(effects)
    fewest(len(order), lambda count: attempt(first(count)) is not False, _SLACK)
    best = min((names for names, held in tried.items() if held), key=len, default=frozenset())
    pins = [name for name in first(len(order)) if name in best]
    if pins:
        last = len(tried) + _PRUNING

        def still_holds(names: Collection[str]) -> bool | None:
            return None if len(tried) >= last or is_late() else bool(attempt(names))

        pins = _pruned(pins, still_holds)
    moved = {name: effect for unit, effect in effects.items() for name in unit}
    kept = {each: moved[name] for name in nodes if name in pins for each in with_bodies([name])}
    most_failed = max((len(names) for names, held in tried.items() if held is False), default=0)
    return Pins(kept, most_failed, len(tried), is_late())


def ranked(
    files: BothFiles, batches: Sequence[Feeds], queries: Collection[str], errors: Sequence[LocalError]
) -> dict[tuple[str, ...], float]:
    """Rank groups of nodes of the reference that are pinned together, those first whose rounding moves the outputs
    most: the effect of each as a share of the outputs, 0 of nodes that were not asked for.
    """
    by_node: dict[ir.Node, list[LocalError]] = {}
    values = main_values(files.reference)
    for error in errors:
        node = source_node(values[error.pair.reference])
        if node is not None and not is_op(node, *_NEVER) and error.relative > _SINGLE_PRECISION:
            by_node.setdefault(node, []).append(error)
    nodes = list(by_node)
    effects = effects_of(files, batches, queries, list(by_node.values()), single=_SINGLE, runs=_RUNS)
    effects.sort(key=lambda effect: -effect.error / math.sqrt(len(effect.nodes)))
    error_of = {nodes[i]: effect.error for effect in effects for i in effect.nodes}
    order = list(error_of)
    # What rounding explains moves the outputs of a network of near ties, too.
    order.sort(key=lambda node: all(error.relative < WRONG for error in by_node[node]))
    others = [node for node in files.reference.graph if node not in by_node and not is_op(node, *_NEVER)]
    order += sorted(others, key=lambda node: len(with_makers(node)) == 1)  # exact ones last, as a comparison

    units: dict[tuple[str, ...], float] = {}
    for node in order:
        parts = [with_makers(node)]
        if any(error.relative >= WRONG for error in by_node.get(node, ())):
            # A rounded operand spoils it, as Sub of two large ones: next come the nodes that make its operands.
            makers = [source_node(value) for value in node.inputs if value is not None]
            parts.append([maker for maker in makers if maker is not None and not is_op(maker, *_NEVER)])
        for part in parts:
            units.setdefault(tuple(map(name_of, part)), error_of.get(node, 0.0))
    return units


def fewest(limit: int, holds: Callable[[int], bool], slack: float = 0.0) -> int | None:
    """Search the least of 1 to limit that holds, by doubling, then bisection; None if limit does not hold.

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


def _pruned(names: list[str], holds: Callable[[list[str]], bool | None]) -> list[str]:
    """Take out parts, the later ones first, until none can be.

    Args:
        holds: None: no more may be tried.
    """
    size = len(names) // 2
    while size:
        for start in reversed(range(0, len(names), size)):
            without = names[:start] + names[start + size :]
            held = holds(without) if without else False
            if held is None:
                return names
            names = without if held else names
        size //= 2
    return names
