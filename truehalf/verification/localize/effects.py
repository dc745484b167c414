"""Effects of nodes: how far the reference's outputs move when only one node is as the candidate has it.

A local error by itself would put a dead signal that rounds to nothing before a wrong weight: what nothing reads at that
scale has no effect. A network may hold hundreds of such signals, so many nodes are asked in parts, and a part is parted
again where it has an effect.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from truehalf.verification.graft import Graft
from truehalf.verification.localize.both_files import BothFiles
from truehalf.verification.localize.node_errors import LocalError
from truehalf.verification.metrics.query_rows import outputs_apart

Feeds = Mapping[str, np.ndarray]
_ONE_BY_ONE = 12  # nodes
_PARTS = 8  # that more of them are asked in at first
_PASSED_OVER = 0.1  # of the effect of all: a part that has less has no error in it


def effects_of(
    files: BothFiles, batches: Sequence[Feeds], queries: Collection[str], nodes: Sequence[Sequence[LocalError]]
) -> dict[int, float]:
    """Relative RMS error of the worst output by position in `nodes`; nodes in parts without an effect are left out.

    Args:
        queries: outputs whose rows may come in any order.
        nodes: the tensors that each node computes otherwise, in the order of the graph.

    Raises:
        StageError: when a run fails.
    """
    reference = _Reference(files, batches, queries, [error for errors in nodes for error in errors])

    def effect(part: Sequence[int]) -> float:
        return reference.moved([error for i in part for error in nodes[i]])

    every = list(range(len(nodes)))
    if len(nodes) <= _ONE_BY_ONE:
        return {i: effect([i]) for i in every}
    least = _PASSED_OVER * min(effect(every), 1.0)
    size = -(-len(nodes) // _PARTS)
    waiting = [every[start : start + size] for start in range(0, len(nodes), size)]
    found: dict[int, float] = {}
    for part in waiting:
        moved = effect(part)
        if len(part) == 1:
            found[part[0]] = moved
        elif moved >= least:
            waiting += [part[: len(part) // 2], part[len(part) // 2 :]]
    return found


class _Reference:
    """The reference in one session that may be given the candidate's tensors."""

    def __init__(
        self, files: BothFiles, batches: Sequence[Feeds], queries: Collection[str], errors: Iterable[LocalError]
    ) -> None:
        self._model, self._batches, self._queries = files.reference, batches, queries
        self._outputs = [str(value.name) for value in files.reference.graph.outputs]
        self._optional = {error.pair.reference for error in errors if error.same_shape}
        self._graft = Graft(files.reference, self._outputs, optional=self._optional)
        self._exact: dict[int, dict[str, np.ndarray]] = {}

    def moved(self, errors: Sequence[LocalError]) -> float:
        """How far the outputs of the worst batch move with these tensors as the candidate computes them."""
        worst = 0.0
        for batch in dict.fromkeys(error.batch for error in errors):
            given = {e.pair.reference: e.computed for e in errors if e.batch == batch and e.computed is not None}
            if batch not in self._exact:
                self._exact[batch] = self._graft.run(self._batches[batch])
            # An output that is given itself is shown as it is computed.
            made = {**self._run(batch, given), **{name: given[name] for name in self._outputs if name in given}}
            worst = max(worst, outputs_apart(self._exact[batch], made, self._queries))
        return worst

    def _run(self, batch: int, given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        if self._optional.issuperset(given):
            return self._graft.run(self._batches[batch], given)
        return Graft(self._model, self._outputs, given).run(self._batches[batch], given)
