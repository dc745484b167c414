"""Type and shape of every value, as far as onnx can infer them: value_info for every reader of the file.

Types that are there stay; shapes become what follows from the inputs. Counts the values that had
no type or no shape and have both now.
"""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

from truehalf.ir.facts import all_nodes
from truehalf.ir.normalize import InferTypes
from truehalf.ir.passes import Done, Pass


class InferValueInfo(Pass):
    """Infers types and shapes of a model."""

    def edit(self, model: ir.Model, done: Done) -> None:
        untyped = untyped_values(model)
        InferTypes()(model)
        done.counts["values"] += len(untyped) - len(untyped_values(model, among=untyped))
        for node in all_nodes(model):
            if node.domain == "" and any(value.name and value.type is None for value in node.outputs):
                done.refuse(node, "onnx infers no type for what it gives")


def untyped_values(model: ir.Model, among: Iterable[ir.Value] | None = None) -> list[ir.Value]:
    """Results of nodes without a type or a shape; those of `among` that still are in the model, where it is given."""
    results = [value for node in all_nodes(model) for value in node.outputs if value.name]
    wanted = None if among is None else set(among)
    chosen = [value for value in results if wanted is None or value in wanted]
    return [value for value in chosen if value.type is None or value.shape is None]
