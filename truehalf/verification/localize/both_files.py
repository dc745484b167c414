"""Reference and candidate side by side: which nodes of theirs are the same, and what was decided about them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import onnx_ir as ir

from truehalf.calibration.instrument import main_values
from truehalf.conversion.report import Decision
from truehalf.emulation.pessimistic import split_sums
from truehalf.ir.facts import name_of
from truehalf.ir.normalize import InferTypes
from truehalf.ir.ops import Trait, has
from truehalf.ir.selectors import scope_of
from truehalf.verification.localize.align import align, source_node, uncast
from truehalf.verification.pinning.as_argument import entry_of, pins_argument


class BothFiles:
    """See above.

    Attributes:
        reference, candidate: the models; the candidate is a typed copy.
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
        self.reference, self.candidate = reference, candidate.clone()
        InferTypes(missing=True)(self.candidate)
        self.aligned = align(reference, self.candidate)
        self.values = main_values(self.candidate)
        self._in_reference = {mine: ours for ours, mine in self.aligned.items()}
        self._reference_values = main_values(reference)
        self.pessimistic, self._pinned = pessimistic, pinned
        self._decisions = {row["node"]: row for row in decisions or ()}

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

    def chooses_alike(self, node: ir.Node) -> bool:
        """Whether it only chooses (a place, a side of a threshold), of the same tensors and by the same constants as
        the reference's node: then another choice is the doing of what it reads, be it only rounded.
        """
        original = self.original(node)
        if original is None or not has(node, Trait.STEPS) or node.op_type != original.op_type:
            return False
        if dict(node.attributes) != dict(original.attributes) or len(node.inputs) != len(original.inputs):
            return False
        return all(self._same(mine, ours) for mine, ours in zip(node.inputs, original.inputs, strict=True))

    def _same(self, mine: ir.Value | None, ours: ir.Value | None) -> bool:
        if mine is None or ours is None:
            return mine is ours
        constants = [ir.convenience.get_const_tensor(value) for value in (mine, ours)]
        if constants[0] is not None and constants[1] is not None:
            a, b = (constant.numpy() for constant in constants if constant is not None)
            with np.errstate(over="ignore"):
                a, b = (each.astype(np.float16) if each.dtype.kind == "f" else each for each in (a, b))
            return np.array_equal(a, b)
        return self.aligned.get(str(ours.name), str(ours.name)) in {str(value.name) for value in uncast(mine)}

    def candidate_as_run(self) -> ir.Model:
        """The candidate, with explicit sums where they are rounded; values keep their names."""
        return split_sums(self.candidate) if self.pessimistic else self.candidate

    def scope(self, node: ir.Node) -> str:
        """The module that it was exported from."""
        return scope_of(self.original(node) or node)

    def decision(self, node: ir.Node) -> Decision | None:
        """Its row of decisions.json, where there is one."""
        original = self.original(node)
        return self._decisions.get(name_of(original or node)) or self._decisions.get(node.name or "")

    def selector(self, node: ir.Node) -> str:
        """What keeps it FP32, beside the entries in force, quoted for the command line."""
        return self.selector_of([entry_of(name_of(self.original(node) or node))])

    def selector_of(self, entries: Sequence[str]) -> str:
        """Entries of node_block_list beside those in force, quoted for the command line."""
        return pins_argument("node_block_list", entries, self._pinned)
