"""Functions of a file, inlined on a copy: rules then know where the values in them come from.

    call "head" of Block, which holds "slice"    ->    "head/slice"

Innermost functions first, so that a node's name tells all the calls that lead to it. Functions that nobody calls are
left out, and so are those that a plugin stands for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from stages.graph.facts import all_nodes
from stages.graph.lint.base import node_name
from stages.graph.normalize import infer_types

_CALL = "truehalf.lint.call"  # of the call that a node is being inlined from
_OWN = "truehalf.lint.name"  # that a node has in its function


def inlined(model: ir.Model, plugin_ops: Collection[str]) -> tuple[ir.Model, str]:
    """The model, or where it has functions, a copy without them; and why they could not be inlined ("": they were).

    A function with a version of ONNX's operators of its own is read as if it had the model's.
    """
    if not model.functions:
        return model, ""
    try:
        copy = model.clone()
        _inline(copy, plugin_ops)
    except (ir.passes.PassError, RuntimeError, ValueError) as error:  # a cycle, a graph that is handed over, ...
        return model, str(error.__cause__ or error)
    infer_types(copy)
    return copy, ""


def _inline(model: ir.Model, plugin_ops: Collection[str]) -> None:
    for function in model.functions.values():
        for domain, version in model.graph.opset_imports.items():
            if domain in function.opset_imports:
                function.opset_imports[domain] = version
    while ready := _leaves(model, plugin_ops):
        for node in [node for node in _nodes(model) if node.op_identifier() in ready]:
            node.metadata_props[_CALL] = node_name(node)
        for key in ready:
            for node in model.functions[key].all_nodes():
                node.meta[_OWN] = node_name(node)
        InlinePass(criteria=lambda function: function.identifier() in ready)(model)
        for node in _nodes(model):
            call = node.metadata_props.pop(_CALL, None)
            if call is not None and _OWN in node.meta:
                node.name = f"{call}/{node.meta[_OWN].lstrip('/')}"
        for key in sorted(ready):
            model.functions.pop(key, None)  # of calls that are never made
    left = sorted(name for domain, name, *_ in model.functions if not _is_plugin(domain, name, plugin_ops))
    if left:
        raise ValueError(f"{', '.join(left)}: functions that call each other")


def _leaves(model: ir.Model, plugin_ops: Collection[str]) -> set[ir.OperatorIdentifier]:
    """Functions that call none, plugins left out."""
    wanted = {key for key in model.functions if not _is_plugin(key[0], key[1], plugin_ops)}
    return {
        key for key in wanted if not any(node.op_identifier() in wanted for node in model.functions[key].all_nodes())
    }


def _nodes(model: ir.Model) -> Iterator[ir.Node]:
    yield from all_nodes(model)
    for function in model.functions.values():
        yield from function.all_nodes()


def _is_plugin(domain: str, name: str, plugin_ops: Collection[str]) -> bool:
    return name in plugin_ops or f"{domain}::{name}" in plugin_ops
