"""Rotary tables that no input changes become constants, however they were computed; Tile of others becomes Concat.

    Sin(f(constants)), Cos(f(constants))  ->  constant, with f and whatever If, Tile, Expand, Range stands in it
    Tile(x, [1, ..., k, ..., 1])          ->  Concat(x, ..., x)              k times, at the one axis that is repeated

Only on the way to a Sin or Cos, or from one (cos(x).tile(2)). TensorRT fails on Tile and If there. A table may have
LARGE bytes; other constants are folded by fold_constants, which lets nothing grow.

Refused: repeats that only a run knows, more than one repeated axis, more than MANY copies.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from truehalf.ir.facts import all_nodes, is_op, reached, readers_of, with_subgraphs
from truehalf.ir.normalize import InferTypes
from truehalf.ir.ops import Trait, with_trait
from truehalf.ir.passes import Done, Pass
from truehalf.repairs.passes.fold_constants import fold
from truehalf.repairs.rewrite import Writer, ints_of

LARGE = 1 << 24  # bytes: 4096 positions of 1024 float32
MANY = 8
_AFTER = with_trait(Trait.LAYOUT | Trait.SAME) | {"Concat", "Tile"} | {"Add", "Mul"}


class RopeConstants(Pass):
    """Folds the tables of a typed model and rewrites its Tiles."""

    def edit(self, model: ir.Model, done: Done) -> None:
        waves = [node for node in all_nodes(model) if is_op(node, "Sin", "Cos")]
        fold(model, done, {*_before(waves), *_after(waves)}, LARGE)
        if done.counts:
            InferTypes()(model)
        waves = [node for node in all_nodes(model) if is_op(node, "Sin", "Cos")]
        near = {*_before(waves), *_after(waves)}
        writer = Writer(model, done)
        for node in [node for node in all_nodes(model) if node in near and is_op(node, "Tile")]:
            repeats = ints_of(node.inputs[1])
            repeated = [axis for axis, count in enumerate(repeats or []) if count != 1]
            if repeats is None:
                done.refuse(node, "its repeats are computed in a run; give them as numbers")
            elif len(repeated) != 1 or not 1 < repeats[repeated[0]] <= MANY:
                done.refuse(node, f"it repeats {repeats}: expected one axis, repeated 2 to {MANY} times")
            else:
                copies = [node.inputs[0]] * repeats[repeated[0]]
                writer.replace(node, writer.at(node).op("Concat", *copies, axis=repeated[0]))


def _before(nodes: list[ir.Node]) -> set[ir.Node]:
    """Nodes and all that they are computed from, with the nodes of their subgraphs."""

    def before(node: ir.Node) -> Iterator[ir.Node | None]:
        return (value.producer() for each in with_subgraphs(node) for value in each.inputs if value is not None)

    found = reached(nodes, before)
    return {inner for node in found for inner in with_subgraphs(node)}


def _after(waves: list[ir.Node]) -> set[ir.Node]:
    """Tiles, and the moves and arithmetic up to them, that read a table."""
    first = (reader for wave in waves for reader in readers_of(wave))
    found = reached(first, lambda node: readers_of(node) if is_op(node, *_AFTER) else ())
    return {node for node in found if is_op(node, *_AFTER)}
