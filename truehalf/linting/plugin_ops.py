"""Operators of a graph that plugins supply (engine.plugin_ops): lint must not call them unknown to TensorRT.

Where plugins are given and none is named, every operator of a domain that ONNX does not have is taken for theirs, and
the report states that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from truehalf.ir.facts import all_nodes

if TYPE_CHECKING:
    import onnx_ir as ir

_ONNX_DOMAINS = ("", "ai.onnx", "ai.onnx.ml")
ASSUMED = (
    "which operators engine.plugins bring along is not known, so lint takes every operator of a domain that ONNX "
    "does not have for theirs; engine.plugin_ops names them"
)


def ops_of_plugins(model: ir.Model, plugins: Sequence[str], named: Sequence[str]) -> tuple[list[str], bool]:
    """The operators, sorted, and whether they are assumed.

    Args:
        plugins: engine.plugins.
        named: engine.plugin_ops.
    """
    if not plugins or named:
        return sorted(named), False
    theirs = {f"{node.domain}::{node.op_type}" for node in all_nodes(model) if node.domain not in _ONNX_DOMAINS}
    return sorted(theirs), True
