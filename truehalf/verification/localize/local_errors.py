"""Errors that every node of a candidate makes by itself, and how far each moves the outputs.

Only the nodes with the largest local errors are asked for their effect. A local error by itself would put a dead signal
that rounds to nothing before a wrong weight: what nothing reads at that scale has no effect. A network may hold
hundreds of such signals, so many nodes are asked in parts, and a part is parted again where it has an effect.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from truehalf.ir.facts import label_of
from truehalf.verification.localize.align import source_node, uncast
from truehalf.verification.localize.both_files import BothFiles
from truehalf.verification.localize.first_nonfinite import Nonfinite
from truehalf.verification.localize.node_errors import Comparer, Switched
from truehalf.verification.localize.side_by_side import side_by_side
from truehalf.verification.metrics.query_rows import outputs_apart

if TYPE_CHECKING:
    from truehalf.report.drawings import NodeRow

Feeds = Mapping[str, np.ndarray]
WRONG = 0.05  # relative error that rounding does not explain
_ASKED = 12  # nodes, at least, for their effect
_MOST_ASKED = 400
_PARTS = 8  # that they are asked in at first, where they are many
_PASSED_OVER = 0.1  # of the effect of all: a part that has less has no error in it


class LocalErrors:
    """Errors of all nodes: the largest of all batches.

    Attributes:
        pairs: of tensors that are compared.
        local_error, error, absmax: by pair, see truehalf.verification.localize.node_errors.Errors.
    """

    def __init__(
        self, files: BothFiles, batches: Sequence[Feeds], queries: Collection[str], same_choices: bool = False
    ) -> None:
        self._files, self._queries = files, queries
        self._side = side_by_side(files.reference, files.candidate_as_run(), files.aligned, same_choices)
        comparer = Comparer(self._side)
        runs = [comparer.run(feeds) for feeds in batches]
        self.pairs = comparer.pairs
        self.local_error, self.error, self.absmax = (
            np.max([getattr(run, name) for run in runs], axis=0) for name in ("local_error", "error", "absmax")
        )
        worst = max(range(len(runs)), key=lambda i: self._apart(runs[i].reference, runs[i].candidate))
        self._feeds, self._worst = batches[worst], runs[worst]
        self._by_tensor = {pair.candidate: i for i, pair in enumerate(self.pairs)}

    def _apart(self, reference: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> float:
        return outputs_apart(reference, other, self._queries)

    def of(self, tensor: str) -> int | None:
        """Position of the pair of a candidate's tensor, or of what it was cast from."""
        names = (str(value.name) for value in uncast(self._files.values[tensor]))
        return next((self._by_tensor[name] for name in names if name in self._by_tensor), None)

    def covers_outputs(self) -> bool:
        """Whether every output of the candidate is compared, so that nothing that spoils one is overlooked."""
        outputs = self._files.candidate.graph.outputs
        return all(str(value.name) in self._by_tensor for value in outputs)

    def inherited(self, item: Nonfinite) -> bool:
        """Whether a node is finite on the reference's tensors, and reads others that are wrong."""
        position, node = self.of(item.tensor), self._files.values[item.tensor].producer()
        if position is None or node is None or not np.isfinite(self.local_error[position]):
            return False
        read = [
            self.of(str(value.name)) for value in node.inputs if value is not None and value.name in self._files.values
        ]
        return any(self.error[i] >= WRONG for i in read if i is not None)

    def by_effect(self) -> list[tuple[ir.Node, int, float]]:
        """The nodes with the largest, by effect: each with its output's position in `pairs`, and the effect: the
        relative RMS error of the outputs (the worst one) when only this node is as the candidate has it.
        """
        groups: dict[ir.Node, list[int]] = defaultdict(list)
        for i, pair in enumerate(self.pairs):
            node = source_node(self._files.values[pair.candidate])
            if node is not None and self.local_error[i] > 0:
                groups[node].append(i)
        worst = {node: max(positions, key=self.local_error.__getitem__) for node, positions in groups.items()}
        asked = sorted(groups, key=lambda node: -self.local_error[worst[node]])[:_MOST_ASKED]
        asked = [node for i, node in enumerate(asked) if i < _ASKED or self.local_error[worst[node]] >= WRONG]
        if not asked:
            return []
        effects = self._effects([groups[node] for node in asked])
        order = sorted(effects, key=lambda i: (-effects[i], i))
        return [(asked[i], worst[asked[i]], effects[i]) for i in order]

    @cached_property
    def whole(self) -> float:
        """Effect of all nodes together."""
        return self._apart(self._worst.reference, self._worst.candidate)

    def inputs_absmax(self, node: ir.Node) -> float | None:
        """Largest |x| of the reference in what a node reads."""
        read = [str(value.name) for value in node.inputs if value is not None and value.name]
        inputs = [self.absmax[j] for name in read if name in self._files.values and (j := self.of(name)) is not None]
        return max(map(float, inputs), default=None)

    def _effects(self, groups: list[list[int]]) -> dict[int, float]:
        """Effect by position in `groups`; those in parts without an effect are left out."""
        switched = Switched(self._side, [[self.pairs[i] for i in positions] for positions in groups])

        def effect(part: Sequence[int]) -> float:
            return self._apart(self._worst.reference, switched.run(self._feeds, part))

        in_order = sorted(range(len(groups)), key=lambda i: groups[i][0])
        if len(groups) <= _ASKED:
            return {i: effect([i]) for i in in_order}
        least = _PASSED_OVER * min(effect(in_order), 1.0)
        size = -(-len(in_order) // _PARTS)
        waiting = [in_order[start : start + size] for start in range(0, len(in_order), size)]
        found: dict[int, float] = {}
        for part in waiting:
            moved = effect(part)
            if len(part) == 1:
                found[part[0]] = moved
            elif moved >= least:
                waiting += [part[: len(part) // 2], part[len(part) // 2 :]]
        return found

    def profile(self) -> list[NodeRow]:
        """Of every node the output with the largest local error, in the order of the graph."""
        worst: dict[ir.Node, int] = {}
        for i, pair in enumerate(self.pairs):
            value = self._files.values[pair.candidate]
            node = source_node(value)
            if node is None or value.dtype not in (ir.DataType.FLOAT, ir.DataType.FLOAT16):
                continue
            if node not in worst or self.local_error[i] > self.local_error[worst[node]]:
                worst[node] = i
        order = {node: number for number, node in enumerate(self._files.candidate.graph)}
        rows: list[NodeRow] = []
        for node, i in sorted(worst.items(), key=lambda item: order[item[0]]):
            half = any(output.dtype == ir.DataType.FLOAT16 for output in node.outputs)
            rows.append(
                {
                    "node": label_of(node),
                    "op_type": node.op_type,
                    "tensor": self.pairs[i].candidate,
                    "precision": "fp16" if half else "fp32",
                    "error": finite(self.error[i]),
                    "local_error": finite(self.local_error[i]),
                }
            )
        return rows


def finite(number: float) -> float | None:
    """The number, or None where JSON has none for it."""
    return float(number) if np.isfinite(number) else None
