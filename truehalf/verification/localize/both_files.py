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
from truehalf.ir.selectors import scope_of
from truehalf.verification.graft import as_held
from truehalf.verification.localize.align import align, source_node
from truehalf.verification.pinning.as_argument import entry_of, pins_argument


@dataclass(frozen=True)
class Pair:
    """Names of a tensor in the reference, and in the candidate."""

    reference: str
    candidate: str


class BothFiles:
    """An aligned pair of models.

    Attributes:
        reference, candidate: typed copies of the models.
        aligned: candidate tensor by reference tensor.
        values: of the candidate's main graph, by name.
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
        self.aligned = align(self.reference, self.candidate)
        self.values = main_values(self.candidate)
        self._in_reference = {mine: ours for ours, mine in self.aligned.items()}
        self._reference_values = main_values(self.reference)
        self.pessimistic, self._pinned = pessimistic, pinned
        self._decisions = {row["node"]: row for row in decisions or ()}

    @cached_property
    def pairs(self) -> list[Pair]:
        """Tensors of numbers that both files compute, in the order of the reference."""
        found = []
        for ours, mine in self.aligned.items():
            value, other = self._reference_values.get(ours), self.values.get(mine)
            if value is None or other is None or other.producer() is None or not _comparable(value, other):
                continue
            found.append(Pair(ours, mine))
        return found

    @cached_property
    def _pair_by_tensor(self) -> dict[str, Pair]:
        return {pair.candidate: pair for pair in self.pairs}

    @cached_property
    def emulated(self) -> ir.Model:
        """The candidate in emulation, whose tensors have its names (truehalf.emulation.emulate)."""
        return emulate(split_sums(self.candidate) if self.pessimistic else self.candidate)

    def as_held(self, tensor: str, array: np.ndarray) -> np.ndarray:
        """An array as a tensor of the candidate holds it; float16 numbers as float32."""
        held = as_held(array, self.values[tensor].dtype)
        return held.astype(np.float32) if held.dtype == np.float16 else held

    def pair_of(self, tensor: str) -> Pair:
        """The pair of a tensor of the candidate."""
        return self._pair_by_tensor[tensor]

    def read_by(self, pair: Pair) -> set[str]:
        """The candidate's tensors, of other pairs, that it computes this one from."""
        names = (str(value.name) for value in self._computing(pair))
        return {name for name in names if name in self._pair_by_tensor and name != pair.candidate}

    def inner(self, pair: Pair) -> list[str]:
        """Float tensors that the candidate computes on the way from these to this one, with it, in graph order."""
        found = [value for value in self._computing(pair) if value.dtype in _FLOATS and value.producer() is not None]
        known = {str(value.name) for value in found} - (self._pair_by_tensor.keys() - {pair.candidate})
        return [name for name in self.values if name in known]

    def _computing(self, pair: Pair) -> list[ir.Value]:
        """The candidate's tensors on the way to one, back to those of other pairs."""

        def read(value: ir.Value) -> list[ir.Value]:
            node = value.producer()
            is_start = str(value.name) == pair.candidate
            return [] if node is None or (not is_start and value.name in self._pair_by_tensor) else values_read(node)

        return list(reached([self.values[pair.candidate]], read))

    def blamed(self, tensor: str) -> ir.Node | None:
        """The node that causes a tensor's error: what writes it, without Casts; for a Cast to float16 of an FP32
        tensor, and for a constant, the first that reads it.
        """
        value = self.values[tensor]
        node = value.producer()
        if node is not None and not has(node, Trait.SAME) and node.op_type != "Constant":
            return node
        if node is not None and node.op_type != "Constant" and value.dtype != ir.DataType.FLOAT16:
            return source_node(value)
        waiting = [value]
        for value in waiting:
            for reader in value.consumers():
                if reader.op_type not in ("Cast", "Identity"):
                    return reader
                waiting += reader.outputs
        return source_node(value)

    def original(self, node: ir.Node) -> ir.Node | None:
        """The node of the reference that writes what this one writes."""
        for output in node.outputs:
            names = [str(output.name), *(str(out.name) for each in output.consumers() for out in each.outputs)]
            for name in names:
                value = self._reference_values.get(self._in_reference.get(name, ""))
                if value is not None and value.producer() is not None:
                    return source_node(value)
        return None

    def scope(self, node: ir.Node) -> str:
        """The module that it was exported from."""
        return scope_of(self.original(node) or node)

    def decision(self, node: ir.Node) -> Decision | None:
        """Its row of decisions.json, where there is one."""
        original = self.original(node)
        return self._decisions.get(name_of(original or node)) or self._decisions.get(node.name or "")

    def selector(self, node: ir.Node) -> str:
        """What keeps it FP32, beside the entries in force, quoted for the command line."""
        return self.selector_of([entry_of(name_of(each)) for each in with_makers(self.original(node) or node)])

    def selector_of(self, entries: Sequence[str]) -> str:
        """Entries of node_block_list beside those in force, quoted for the command line."""
        return pins_argument("node_block_list", entries, self._pinned)


def with_makers(node: ir.Node) -> list[ir.Node]:
    """A node; with one that chooses by its values also what computes them."""
    found = [node]
    chooses = has(node, Trait.STEPS) and row_of(node).choice is not None
    value = node.inputs[0] if chooses else None
    while value is not None and (maker := source_node(value)) is not None:
        found.append(maker)
        value = maker.inputs[0] if has(maker, Trait.EXACT) and maker.inputs else None
    return found


_FLOATS = {ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE}
_COUNTS = {ir.DataType.INT64, ir.DataType.INT32, ir.DataType.BOOL}


def _comparable(ours: ir.Value, mine: ir.Value) -> bool:
    """Whether both are tensors of floats, or of the same integers or booleans; sequences are none."""
    if not isinstance(ours.type, ir.TensorType) or not isinstance(mine.type, ir.TensorType):
        return False
    return {ours.dtype, mine.dtype} <= _FLOATS or (ours.dtype == mine.dtype and ours.dtype in _COUNTS)
