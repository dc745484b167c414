"""Effects of nodes: how far the reference's outputs move when only one node is as the candidate has it.

A local error by itself would put a dead signal that rounds to nothing before a wrong weight: what nothing reads at that
scale has no effect. A network may hold hundreds of such signals, so many nodes are asked in parts, and the part with
the largest effect is parted again. Nodes that make NaN or Inf are asked for one by one: in a part, what is given behind
such a node would hide it.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from truehalf.verification.graft import Graft
from truehalf.verification.localize.both_files import BothFiles
from truehalf.verification.localize.node_errors import LocalError
from truehalf.verification.metrics.tensors import outputs_apart

Feeds = Mapping[str, np.ndarray]
_ONE_BY_ONE = 12  # nodes
_PARTS = 8  # that more of them are asked in at first


@dataclass(frozen=True)
class Effect:
    """Relative RMS error of the worst output with some nodes as the candidate has them.

    Attributes:
        nodes: positions of the nodes.
        error: Inf where the outputs are not finite.
    """

    nodes: list[int]
    error: float


def effects_of(
    files: BothFiles,
    batches: Sequence[Feeds],
    queries: Collection[str],
    nodes: Sequence[Sequence[LocalError]],
    *,
    single: int,
    runs: int,
) -> list[Effect]:
    """Effects of nodes, and of parts in which no single node was asked for; together they have every node once.

    Args:
        queries: outputs whose rows may come in any order.
        nodes: the tensors that each node computes otherwise, in the order of the graph.
        single: how many single nodes, those with the largest effects, are asked for, beside those of NaN and Inf.
        runs: of the reference, at most.

    Raises:
        StageError: when a run fails.
    """
    outputs = _Outputs(files, batches, queries)
    waiting: list[tuple[float, int, list[int]]] = []
    found: list[Effect] = []
    asked = 0

    def ask(part: list[int]) -> None:
        nonlocal asked
        asked += 1
        error = outputs.moved([each for i in part for each in nodes[i]])
        heapq.heappush(waiting, (-error, part[0], part))

    broken = [i for i, errors in enumerate(nodes) if any(math.isinf(error.relative) for error in errors)][:_ONE_BY_ONE]
    others = [i for i in range(len(nodes)) if i not in broken]
    size = 1 if len(others) <= _ONE_BY_ONE else -(-len(others) // _PARTS)
    for part in [*([i] for i in broken), *(others[start : start + size] for start in range(0, len(others), size))]:
        ask(part)
    while waiting:
        error, _, part = heapq.heappop(waiting)
        if len(part) == 1 or single <= 0 or asked >= runs:
            found.append(Effect(part, -error))
            single -= len(part) == 1 and part[0] not in broken
        else:
            middle = len(part) // 2
            ask(part[:middle])
            ask(part[middle:])
    return found


class _Outputs:
    """Outputs of the reference, and how they move where it is given the candidate's tensors."""

    def __init__(self, files: BothFiles, batches: Sequence[Feeds], queries: Collection[str]) -> None:
        self._model, self._batches, self._queries = files.reference, batches, queries
        self._names = [str(value.name) for value in files.reference.graph.outputs]
        self._exact: dict[int, dict[str, np.ndarray]] = {}

    def moved(self, errors: Sequence[LocalError]) -> float:
        """How far the outputs of the worst batch move with these tensors as the candidate computes them."""
        worst = 0.0
        for batch in dict.fromkeys(error.batch for error in errors):
            given = {e.pair.reference: e.computed for e in errors if e.batch == batch and e.computed is not None}
            if batch not in self._exact:
                self._exact[batch] = self._outputs(batch, {})
            worst = max(worst, outputs_apart(self._exact[batch], self._outputs(batch, given), self._queries))
        return worst

    def _outputs(self, batch: int, given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs with some tensors given; integers and booleans as floats, so that they count."""
        made = Graft(self._model, self._names, given).run({**self._batches[batch], **given})
        made |= {name: given[name] for name in self._names if name in given}
        return {name: array.astype(np.float64) if array.dtype.kind in "iub" else array for name, array in made.items()}
