"""Types of values that onnx leaves open, by the schemas of ONNX's operators and of those that ONNX Runtime has beside.

An output has the type of an input of the same type parameter, or the one that its schema states. GroupNormalization of
FP16: onnx types it by the function that it stands for, which it cannot type. Operators of com.microsoft: onnx does not
know them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import onnx_ir as ir

from truehalf.ir.facts import all_nodes
from truehalf.ir.normalize import InferTypes
from truehalf.ir.slots import schema_of

_FIXED = {f"tensor({dtype.name.lower()})": ir.TensorType(dtype) for dtype in ir.DataType}


class _Parameters(NamedTuple):
    """Type parameters (T, ...) of an operator's inputs and outputs, or types that they always have (tensor(float))."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def infer_types(model: ir.Model) -> None:
    """Fill in types and shapes as far as onnx can infer them, and types as schemas say; see InferTypes."""
    nodes = list(all_nodes(model))
    InferTypes()(model)
    while _typed(nodes):
        InferTypes()(model)


def infer_open_types(model: ir.Model) -> None:
    """The same, for a model whose types are inferred as far as onnx can."""
    if _typed(all_nodes(model)):
        infer_types(model)


def _typed(nodes: Iterable[ir.Node]) -> int:
    """Types outputs by schemas, and says how many."""
    count = 0
    for node in nodes:
        if all(output.type is not None or not output.name for output in node.outputs):
            continue
        parameters = _parameters(node)
        for output, wanted in zip(node.outputs, _stretched(parameters.outputs, len(node.outputs)), strict=False):
            if output.type is None and output.name:
                output.type = _type_of_its_like(node, parameters, wanted)
                count += output.type is not None
    return count


def _parameters(node: ir.Node) -> _Parameters:
    schema = schema_of(node)
    if schema is None:
        return _contributed().get((node.domain, node.op_type), _Parameters((), ()))
    inputs, outputs = (
        tuple(slot.type_str if slot.is_homogeneous else "" for slot in slots)
        for slots in (schema.inputs, schema.outputs)
    )
    return _Parameters(inputs, outputs)


@functools.cache
def _contributed() -> dict[tuple[str, str], _Parameters]:
    """Of operators that ONNX Runtime has beyond ONNX."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    listed: list[Any] = getattr(state, "get_all_operator_schema", list)()  # some builds leave it out
    return {
        (each.domain, each.name): _Parameters(
            tuple(formal.typeStr for formal in each.inputs), tuple(formal.typeStr for formal in each.outputs)
        )
        for each in sorted(listed, key=lambda each: each.since_version)
        if each.domain
    }


def _type_of_its_like(node: ir.Node, parameters: _Parameters, wanted: str) -> ir.TypeProtocol | None:
    read = zip(node.inputs, _stretched(parameters.inputs, len(node.inputs)), strict=False)
    types = (value.type for value, slot in read if slot == wanted and value is not None)
    return next((each for each in types if each is not None), _FIXED.get(wanted))


def _stretched(slots: Sequence[str], count: int) -> list[str]:
    """The last one is of all further ones, too, where their number is open."""
    return [*slots, *([slots[-1]] * (count - len(slots)) if slots else [])]
