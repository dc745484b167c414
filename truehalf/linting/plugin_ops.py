"""Operators of a graph that plugins supply: lint must not call them unknown to TensorRT.

    named      engine.plugin_ops, as Op or domain::Op
    registered what the libraries have registered with TensorRT, where the machine has it
    (truehalf.runtime.machine.probe)

Where plugins are given and neither is known, every operator of a domain that ONNX does not have is taken for theirs,
and the report states that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from truehalf.ir.facts import all_nodes

if TYPE_CHECKING:
    import onnx_ir as ir

_ONNX_DOMAINS = ("", "ai.onnx", "ai.onnx.ml")
ASSUMED = (
    "which operators engine.plugins bring along is not known here, so lint takes every operator of a domain that ONNX "
    "does not have for theirs; engine.plugin_ops names them"
)


def ops_of_plugins(
    model: ir.Model, plugins: Sequence[str], named: Sequence[str], registered: Mapping[str, Sequence[str]] | None = None
) -> tuple[list[str], bool]:
    """The operators, sorted, and whether they are assumed.

    Args:
        plugins: engine.plugins.
        named: engine.plugin_ops.
        registered: by plugin, the operators that it has registered with TensorRT; None where this was not looked up.
    """
    known = set(named).union(*(registered or {}).values())
    if not plugins or named or registered:
        return sorted(known), False
    theirs = {f"{node.domain}::{node.op_type}" for node in all_nodes(model) if node.domain not in _ONNX_DOMAINS}
    return sorted(theirs), True
