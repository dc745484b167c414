"""Errors that every node of a candidate makes by itself, and how far each moves the outputs.

Only the nodes with the largest local errors are asked for their effect. A local error by itself would put a dead signal
that rounds to nothing before a wrong weight: what nothing reads at that scale has no effect. A network may hold
hundreds of such signals, so many nodes are asked in parts, and a part is parted again where it has an effect.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from truehalf.ir.facts import label_of
from truehalf.verification.localize.align import source_node
from truehalf.verification.localize.both_files import BothFiles
from truehalf.verification.localize.first_nonfinite import Nonfinite
from truehalf.verification.localize.node_errors import Comparer, Switched
from truehalf.verification.metrics.query_rows import outputs_apart

if TYPE_CHECKING:
    import onnx_ir as ir

Feeds = Mapping[str, np.ndarray]
WRONG = 0.05  # relative error that rounding does not explain
_ASKED = 12  # nodes, at least, for their effect
_MOST_ASKED = 400
_PARTS = 8  # that they are asked in at first, where they are many
_PASSED_OVER = 0.1  # of the effect of all: a part that has less has no error in it


@dataclass(frozen=True)
class LocalError:
    """What a node does wrong when it reads the reference's tensors.

    Attributes:
        tensor: the output with the largest error.
        local_error, error: its relative errors, on the reference's tensors and in the candidate's run; Inf: not finite.
        effect: relative RMS error of the outputs (the worst one) when only this node is as the candidate has it.
        whole: the same, of all nodes together.
        inputs_absmax, output_absmax: largest |x| of the reference there.
    """

    node: ir.Node
    tensor: str
    local_error: float
    error: float
    effect: float
    whole: float
    inputs_absmax: float | None
    output_absmax: float


@dataclass(frozen=True)
class NodeError:
    """A node of the candidate and the errors of its output; None: not finite.

    Attributes:
        precision: "fp16" or "fp32", of its output.
    """

    node: str
    op_type: str
    tensor: str
    precision: str
    error: float | None
    local_error: float | None


class LocalErrors:
    """Errors of all nodes: the largest of all batches.

    Attributes:
        pairs: of tensors that are compared.
        local_error, error, absmax: by pair, see truehalf.verification.localize.node_errors.Errors.
    """

    def __init__(
        self, files: BothFiles, batches: Sequence[Feeds], queries: Collection[str], same_choices: bool = False
    ) -> None:
        from truehalf.verification.localize.side_by_side import side_by_side

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
        value = self._files.values[tensor]
        while str(value.name) not in self._by_tensor:
            node = value.producer()
            if node is None or node.op_type not in ("Cast", "Identity") or node.inputs[0] is None:
                return None
            value = node.inputs[0]
        return self._by_tensor[str(value.name)]

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

    def by_effect(self) -> list[LocalError]:
        """Those of the nodes with the largest, by effect."""
        groups: dict[ir.Node, list[int]] = defaultdict(list)
        for i, pair in enumerate(self.pairs):
            node = source_node(self._files.values[pair.candidate])
            if node is not None and self.local_error[i] > 0:
                groups[node].append(i)
        largest = {node: max(self.local_error[i] for i in positions) for node, positions in groups.items()}
        asked = sorted(groups, key=lambda node: -largest[node])[:_MOST_ASKED]
        asked = [node for i, node in enumerate(asked) if i < _ASKED or largest[node] >= WRONG]
        if not asked:
            return []
        effects = self._effects([groups[node] for node in asked])
        whole = self._apart(self._worst.reference, self._worst.candidate)
        order = sorted(effects, key=lambda i: (-effects[i], i))
        return [self._local_error(asked[i], groups[asked[i]], effects[i], whole) for i in order]

    def _local_error(self, node: ir.Node, positions: list[int], effect: float, whole: float) -> LocalError:
        i = max(positions, key=lambda each: self.local_error[each])
        read = [str(value.name) for value in node.inputs if value is not None and value.name]
        inputs = [self.absmax[j] for name in read if name in self._files.values and (j := self.of(name)) is not None]
        return LocalError(
            node=node,
            tensor=self.pairs[i].candidate,
            local_error=float(self.local_error[i]),
            error=float(self.error[i]),
            effect=effect,
            whole=whole,
            inputs_absmax=max(map(float, inputs), default=None),
            output_absmax=float(self.absmax[i]),
        )

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

    def profile(self) -> list[NodeError]:
        import onnx_ir as ir

        worst: dict[ir.Node, int] = {}
        for i, pair in enumerate(self.pairs):
            value = self._files.values[pair.candidate]
            node = source_node(value)
            if node is None or value.dtype not in (ir.DataType.FLOAT, ir.DataType.FLOAT16):
                continue
            if node not in worst or self.local_error[i] > self.local_error[worst[node]]:
                worst[node] = i
        order = {node: number for number, node in enumerate(self._files.candidate.graph)}
        rows = []
        for node, i in sorted(worst.items(), key=lambda item: order[item[0]]):
            half = any(output.dtype == ir.DataType.FLOAT16 for output in node.outputs)
            row = (finite(self.error[i]), finite(self.local_error[i]))
            rows.append(
                NodeError(label_of(node), node.op_type, self.pairs[i].candidate, "fp16" if half else "fp32", *row)
            )
        return rows


def finite(number: float) -> float | None:
    """The number, or None where JSON has none for it."""
    return float(number) if np.isfinite(number) else None
