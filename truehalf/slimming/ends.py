"""Inputs and outputs of a slimmed model: the names, types and shapes that it had before."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from truehalf.errors import StageError
from truehalf.ir.normalize import InferTypes
from truehalf.ir.passes import Done, Pass


@dataclass(frozen=True)
class KeepEnds(Pass):
    """Gives inputs and outputs the shapes that they had, once it is known that they are what they were.

    An axis of an output with a name that no input has may have become a number: torch names what it does not look into,
    and onnxslim computes it. It is the same axis, and the file keeps its name. Where an output has another number
    of axes than was stated, that of inference before counts: the statement may be false.

    Raises:
        StageError: inputs or outputs of other names, types or ranks, another number on an axis, one where it varies.
    """

    before: ir.Model
    who: str  # has changed it since

    def edit(self, model: ir.Model, done: Done) -> None:
        graph = self.before.graph
        of_inputs = {axis.value for value in graph.inputs for axis in value.shape or () if not isinstance(axis, int)}
        for kind, varying in (("inputs", of_inputs), ("outputs", of_inputs - {None})):
            expected, got = getattr(graph, kind), getattr(model.graph, kind)
            if kind == "outputs" and len(expected) == len(got) and not _are_same(expected, got, varying):
                expected = _derived_outputs(self.before, got)
            if not _are_same(expected, got, varying):
                listed = ["; ".join(f"{v.name}: {v.dtype} {v.shape}" for v in values) for values in (expected, got)]
                raise StageError("slim-fails", f"{self.who} changed the {kind}: expected {listed[0]}, got {listed[1]}")
            for one, other in zip(expected, got, strict=True):
                done.counts[kind] += other.shape != one.shape
                other.shape = None if one.shape is None else one.shape.copy()


def _are_same(expected: Sequence[ir.Value], got: Sequence[ir.Value], varying: Collection[str | None]) -> bool:
    return len(expected) == len(got) and all(map(_is_same, expected, got, itertools.repeat(varying)))


def _derived_outputs(model: ir.Model, got: Sequence[ir.Value]) -> Sequence[ir.Value]:
    """The outputs; as inference has them, whatever is stated, where what is got has another number of axes."""
    copied = model.clone()
    for output in copied.graph.outputs:
        output.shape = None
    InferTypes()(copied)
    return [
        derived if stated.shape and other.shape and len(stated.shape) != len(other.shape) else stated
        for stated, derived, other in zip(model.graph.outputs, copied.graph.outputs, got, strict=True)
    ]


def _is_same(one: ir.Value, other: ir.Value, varying: Collection[str | None]) -> bool:
    if one.name != other.name or one.dtype not in (None, other.dtype):
        return False
    if one.shape is None or other.shape is None:
        return True
    return len(one.shape) == len(other.shape) and not any(
        isinstance(got, int) and got != expected and (isinstance(expected, int) or expected.value in varying)
        for expected, got in zip(one.shape, other.shape, strict=True)
    )
