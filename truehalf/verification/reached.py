"""Inputs of a graph whose values reach its outputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import onnx_ir as ir

from truehalf.ir.facts import subgraphs
from truehalf.ir.ops import Trait, has, moved_inputs

_OF_EQUALS = frozenset({"Sub", "Xor"})  # and comparisons: of a value and itself they are the same whatever it is
_NOTHING = frozenset[str]()
_FIRST = 1024  # values of a weight that are looked at before all of them


def reached_outputs(model: ir.Model) -> dict[str, list[str]]:
    """By output, the inputs of which a value can reach it.

    A shape is no value; a product with a weight of zeros, and the side that a constant condition of Where leaves out,
    pass nothing on. Nodes with subgraphs pass on all of which these read values.
    """
    inputs = {value: frozenset([str(value.name)]) for value in model.graph.inputs if not value.is_initializer()}
    _spread(model.graph, inputs, model)
    return {str(value.name): sorted(inputs.get(value, _NOTHING)) for value in model.graph.outputs}


def _spread(nodes: Iterable[ir.Node], inputs: dict[ir.Value, frozenset[str]], model: ir.Model) -> None:
    """Add the inputs of which a value reaches what the nodes write, through the functions that they call, too."""
    for node in nodes:
        function = model.functions.get(node.op_identifier())
        if function is not None:
            given = [inputs.get(value, _NOTHING) if value is not None else _NOTHING for value in node.inputs]
            inner = dict(zip(function.inputs, given, strict=False))
            _spread(function, inner, model)
            inputs.update(zip(node.outputs, (inner.get(value, _NOTHING) for value in function.outputs), strict=False))
        elif not has(node, Trait.SHAPE_ONLY):
            read = _NOTHING.union(*(inputs.get(value, _NOTHING) for value in _passed_on(node)))
            inputs.update(dict.fromkeys(node.outputs, read))


def _passed_on(node: ir.Node) -> list[ir.Value]:
    """The inputs, and what subgraphs read, that the outputs depend on."""
    inputs = [value for value in node.inputs if value is not None]
    name = node.op_type if node.domain == "" else ""
    product = has(node, Trait.BILINEAR) or name == "Einsum"
    if product and any(map(_is_zero, inputs if name == "Einsum" else inputs[:2])):
        return inputs[2:] if name != "Einsum" else []
    if name == "Gemm" and node.attributes.get_float("alpha", 1.0) == 0:
        return inputs[2:]
    if has(node, Trait.NORMALIZES) and len(inputs) > 1 and _is_zero(inputs[1]):  # the scale; the shift follows
        return inputs[2:3]
    if (name in _OF_EQUALS or has(node, Trait.COMPARES)) and len(inputs) == 2 and inputs[0] is inputs[1]:
        return []
    if name == "Pow" and _is_zero(inputs[1]):
        return []
    if name == "Clip" and len(inputs) == 3 and inputs[1] is inputs[2]:
        return inputs[1:2]
    if name == "Where":
        sides = [value for value, truth in zip(inputs[1:], (True, False), strict=True) if _is_all(inputs[0], truth)]
        return sides or inputs
    return [*inputs, *_read_by_subgraphs(node)]


def _is_all(value: ir.Value, truth: bool) -> bool:
    """Whether it is a constant that is zero (or False) everywhere, or not anywhere."""
    if not truth:
        return _is_zero(value)
    values = _constant(value)
    return values is not None and bool(values.all())


def _is_zero(value: ir.Value) -> bool:
    """... also where a constant was cast or moved first."""
    values, node = _constant(value), value.producer()
    if values is not None:
        return not values[:_FIRST].any() and not values.any()
    if node is None or node.domain != "":
        return False
    if node.op_type == "ConstantOfShape":
        filled = node.attributes.get_tensor("value")
        return filled is None or not filled.numpy().any()
    moves = node.op_type == "Cast" or moved_inputs(node) == (0,)
    return moves and node.inputs[0] is not None and _is_zero(node.inputs[0])


def _constant(value: ir.Value) -> np.ndarray | None:
    """[values], at least one."""
    tensor = ir.convenience.get_const_tensor(value)
    return None if tensor is None or not tensor.size else tensor.numpy().ravel()


def _read_by_subgraphs(node: ir.Node) -> Iterator[ir.Value]:
    for graph in subgraphs(node):
        yield from graph.outputs
        for inner in graph:
            yield from () if has(inner, Trait.SHAPE_ONLY) else _passed_on(inner)
