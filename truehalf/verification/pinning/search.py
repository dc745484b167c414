"""The one search for pins: nodes that, kept FP32, bring a converted file inside its limits.

    rank      nodes by effect: how far the reference's outputs move when only this node is as the file has it
              (truehalf.verification.localize.node_errors); first those whose error rounding does not explain, last what
              chooses among near ties
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
    files: BothFiles,
    batches: Sequence[Feeds],
    queries: Collection[str],
    errors: Sequence[LocalError],
    holds: Callable[[tuple[str, ...]], bool | None],
) -> Pins:
    """Search for the fewest pins.

    Args:
        files: the FP32 model, with the names that node_block_list is matched with, and what was made of it.
        batches: what it fails on.
        queries: outputs whose rows may come in any order.
        errors: local errors of all tensors, each kept as the candidate computes it.
        holds: whether a file converted with these entries of node_block_list is good enough; None: they would leave too
            little of it in FP16.

    Raises:
        StageError: when a run or a conversion fails.
    """
    nodes = {name_of(node): node for node in files.reference.graph}
    tried: dict[frozenset[str], bool | None] = {}

    def entries_of(names: Collection[str]) -> tuple[str, ...]:
        return tuple(entry_of(name_of(each)) for name in names for each in with_subgraphs(nodes[name]))

    def attempt(names: Collection[str]) -> bool | None:
        key = frozenset(names)
        if key not in tried:
            tried[key] = holds(entries_of(names))
        return tried[key]

    def first(count: int) -> list[str]:
        return list(dict.fromkeys(name for unit in order[:count] for name in unit))

    order = ranked(files, batches, queries, errors)
    count = fewest(len(order), lambda count: attempt(first(count)) is not False, _SLACK) or 0
    pins, is_shortest = first(count), False
    if pins and attempt(pins):
        last = len(tried) + _PRUNING
        pins, is_shortest = _pruned(pins, lambda names: None if len(tried) >= last else bool(attempt(names)))
    else:
        pins = []
    kept = tuple(name for name in nodes if name in pins)
    most_failed = max((len(names) for names, held in tried.items() if held is False), default=0)
    return Pins(kept, entries_of(kept), most_failed, len(tried), is_shortest)


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
    effects = effects_of(files, batches, queries, list(by_node.values()), single=_SINGLE, runs=_RUNS)
    effects.sort(key=lambda effect: -effect.error / math.sqrt(len(effect.nodes)))
    order = [nodes[i] for effect in effects for i in effect.nodes]
    # What rounding explains moves the outputs of a network of near ties, too.
    order.sort(key=lambda node: all(error.relative < WRONG for error in by_node[node]))
    order += [node for node in files.reference.graph if len(with_makers(node)) > 1 and node not in by_node]
    return [tuple(map(name_of, with_makers(node))) for node in order]


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


def _pruned(names: list[str], holds: Callable[[list[str]], bool | None]) -> tuple[list[str], bool]:
    """What is left when no part can be taken out, the later ones first; and whether no single node can be.

    Args:
        holds: None: no more may be tried.
    """
    size = len(names) // 2
    while size:
        for start in reversed(range(0, len(names), size)):
            without = names[:start] + names[start + size :]
            held = holds(without) if without else False
            if held is None:
                return names, False
            names = without if held else names
        size //= 2
    return names, True
