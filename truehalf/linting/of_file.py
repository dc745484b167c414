"""Lint of a file."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from truehalf.io_spec.in_file import names_of, spec_inside
from truehalf.ir.facts import all_nodes
from truehalf.ir.normalize import InferTypes, SortNodes
from truehalf.linting import Finding, lint

if TYPE_CHECKING:
    import onnx_ir as ir


def lint_model(model: ir.Model, tensorrt: str | None, plugin_ops: Collection[str]) -> list[Finding]:
    """Findings of a model as it was loaded; it is sorted, and its types are inferred where the file lacks them.

    Raises:
        StageError: a graph with a cycle, an option that is none.
    """
    SortNodes()(model)
    if any(value.type is None for node in all_nodes(model) for value in node.outputs if value.name):
        InferTypes()(model)
    inputs = names_of(spec_inside(model).inputs)
    return lint(model, tensorrt=tensorrt, plugin_ops=plugin_ops, inputs=inputs)
