"""Reference and candidate: which tensors and nodes are the same, and what was decided about them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import onnx_ir as ir

from truehalf.calibration.instrument import main_values
from truehalf.conversion.report import Decision
from truehalf.emulation.emulate import emulate
from truehalf.emulation.pessimistic import split_sums
from truehalf.ir.facts import name_of, reached, values_read
from truehalf.ir.normalize import InferTypes
from truehalf.ir.ops import Trait, has, row_of
from truehalf.verification.graft import as_held
from truehalf.verification.localize.align import align, source_node
from truehalf.verification.pinning.as_argument import entry_of, pins_argument

_FLOATS = {ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE}
_COUNTS = {ir.DataType.INT64, ir.DataType.INT32, ir.DataType.BOOL}


@dataclass(frozen=True)
class Pair:
    """Names of a tensor in the reference, and in the candidate."""

    reference: str
    candidate: str


class BothFiles:
    """An aligned pair of models.

    Attributes:
        reference, candidate: typed copies of the models.
        values: tensors of the candidate's main graph, by name.
        pairs: tensors of numbers that both files compute, in the order of the reference.
        pessimistic: whether the sums inside FP16 nodes are rounded, too.
    """

    def __init__(
        self,
        reference: ir.Model,
        candidate: ir.Model,
        *,
        decisions: Iterable[Decision] | None = None,
        pinned: Sequence[str] = (),
        pessimistic: bool = False,
    ) -> None:
        """Align them.

        Args:
            decisions: rows of decisions.json.
            pinned: entries of precision.node_block_list in force, which a selector repeats.
            pessimistic: round the sums inside FP16 nodes, too, as the evaluation that failed did.

        Raises:
            StageError: when types cannot be inferred.
        """
        self.reference, self.candidate = reference.clone(), candidate.clone()
        for model in (self.reference, self.candidate):
            InferTypes(missing=True)(model)
        self.values, originals = main_values(self.candidate), main_values(self.reference)
        aligned = align(self.reference, self.candidate)
        self._originals = {mine: originals[ours] for ours, mine in aligned.items() if ours in originals}
        self.pairs = [
            Pair(str(original.name), mine)
            for mine, original in self._originals.items()
            if self.values[mine].producer() is not None and _comparable(original, self.values[mine])
        ]
        self._pairs = {pair.candidate: pair for pair in self.pairs}
        self.pessimistic, self._pinned = pessimistic, pinned
        self._decisions = {row["node"]: row for row in decisions or ()}

    @cached_property
    def emulated(self) -> ir.Model:
        """The candidate in emulation, whose tensors have its names (truehalf.emulation.emulate)."""
        return emulate(split_sums(self.candidate) if self.pessimistic else self.candidate)

    def as_held(self, pair: Pair, array: np.ndarray) -> np.ndarray:
        """The reference's tensor as the candidate holds it; float16 numbers as float32."""
        held = as_held(array, self.values[pair.candidate].dtype)
        return held.astype(np.float32) if held.dtype == np.float16 else held

    def narrow(self, pair: Pair, computed: np.ndarray) -> np.ndarray:
        """What the emulated candidate computes of a tensor, float16 where that is its type."""
        return computed.astype(np.float16) if self.values[pair.candidate].dtype == ir.DataType.FLOAT16 else computed

    def is_discrete(self, pair: Pair) -> bool:
        """Whether a tensor holds integers or booleans."""
        return self.values[pair.candidate].dtype in _COUNTS

    def operands(self, pair: Pair) -> list[Pair]:
        """Other pairs that the candidate computes this one from."""
        names = sorted({str(value.name) for value in self._computing(pair)} - {pair.candidate})
        return [self._pairs[name] for name in names if name in self._pairs]

    def inner(self, pair: Pair) -> list[str]:
        """Float tensors that the candidate computes between its operands and a pair, with that, in graph order."""
        found = {str(value.name) for value in self._computing(pair) if value.dtype in _FLOATS and value.producer()}
        found -= self._pairs.keys() - {pair.candidate}
        return [name for name in self.values if name in found]

    def _computing(self, pair: Pair) -> list[ir.Value]:
        """The candidate's tensors on the way to one, back to those of other pairs."""

        def read(value: ir.Value) -> list[ir.Value]:
            node = value.producer()
            is_start = str(value.name) == pair.candidate
            return [] if node is None or (not is_start and value.name in self._pairs) else values_read(node)

        return list(reached([self.values[pair.candidate]], read))

    def blamed(self, tensor: str) -> ir.Node | None:
        """The node that causes a tensor's error: what writes it, without Casts; for a Cast to float16 of an FP32
        tensor, and for a constant, the first that reads it.
        """
        value = self.values[tensor]
        node = value.producer()
        is_cast_to_half = has(node, Trait.SAME) and value.dtype == ir.DataType.FLOAT16
        if node is not None and node.op_type != "Constant" and not is_cast_to_half:
            return source_node(value)
        waiting = [value]
        for each in waiting:
            for reader in each.consumers():
                if not has(reader, Trait.SAME):
                    return reader
                waiting += reader.outputs
        return source_node(value)

    def original(self, node: ir.Node) -> ir.Node:
        """The node of the reference that writes what this one or its reader writes; else the node itself."""
        for output in node.outputs:
            for written in (output, *(out for reader in output.consumers() for out in reader.outputs)):
                original = self._originals.get(str(written.name))
                if original is not None and (source := source_node(original)) is not None:
                    return source
        return node

    def decision(self, node: ir.Node) -> Decision | None:
        """Its row of decisions.json, where there is one."""
        return self._decisions.get(name_of(self.original(node))) or self._decisions.get(node.name or "")

    def selector(self, node: ir.Node) -> str:
        """What keeps it FP32, beside the entries in force, quoted for the command line."""
        return self.selector_of([entry_of(name_of(each)) for each in with_makers(self.original(node))])

    def selector_of(self, entries: Sequence[str]) -> str:
        """Entries of node_block_list beside those in force, quoted for the command line."""
        return pins_argument("node_block_list", entries, self._pinned)


def with_makers(node: ir.Node) -> list[ir.Node]:
    """A node; with one that chooses by its values also what computes them: of a tensor that float16 holds a TopK or
    ArgMax chooses as before.
    """
    found = [node]
    chooses = has(node, Trait.STEPS) and row_of(node).choice is not None
    value = node.inputs[0] if chooses else None
    while value is not None and (maker := source_node(value)) is not None:
        found.append(maker)
        value = maker.inputs[0] if has(maker, Trait.EXACT) and maker.inputs else None
    return found


def _comparable(ours: ir.Value, mine: ir.Value) -> bool:
    """Whether both are tensors of floats, or of the same integers or booleans; sequences are none."""
    if not isinstance(ours.type, ir.TensorType) or not isinstance(mine.type, ir.TensorType):
        return False
    return {ours.dtype, mine.dtype} <= _FLOATS or (ours.dtype == mine.dtype and ours.dtype in _COUNTS)
