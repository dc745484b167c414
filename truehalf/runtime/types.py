"""Types of values that onnx leaves open, by the schemas of ONNX and of ONNX Runtime.

An output has the type of an input of the same type parameter, or the one that its schema states: GroupNormalization of
FP16, which onnx types by a function that it cannot type; MultiHeadAttention, SkipLayerNormalization and other operators
of files that ONNX Runtime has optimised or quantized.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import onnx_ir as ir

from truehalf.ir.facts import all_nodes
from truehalf.ir.normalize import InferTypes
from truehalf.ir.slots import schema_of
from truehalf.runtime.ort import contributed_types

_FIXED = {f"tensor({dtype.name.lower()})": dtype for dtype in ir.DataType}


def infer_types(model: ir.Model) -> None:
    """Fill in types and shapes as far as onnx can infer them, and types as schemas say; see InferTypes."""
    nodes = list(all_nodes(model))
    InferTypes()(model)
    while _typed(nodes):
        InferTypes()(model)


def infer_open_types(model: ir.Model) -> None:
    """As `infer_types`, for a model whose types are inferred as far as onnx can."""
    if _typed(all_nodes(model)):
        infer_types(model)


def _typed(nodes: Iterable[ir.Node]) -> int:
    """Type outputs by schemas; return how many."""
    count = 0
    for node in nodes:
        open_outputs = [output for output in node.outputs if output.type is None and output.name]
        types = _types_of(node) if open_outputs else []
        for output, dtype in zip(node.outputs, types, strict=False):
            if output in open_outputs:
                output.type = dtype
                count += dtype is not None
    return count


def _types_of(node: ir.Node) -> list[ir.TypeProtocol | None]:
    known = [None if value is None else value.type for value in node.inputs]
    if (schema := schema_of(node)) is None:
        inputs, outputs, allowed = contributed_types().get((node.domain, node.op_type), ([], [], {}))
    else:
        allowed = {}
        inputs, outputs = (
            [slot.type_str if slot.is_homogeneous else "" for slot in slots]
            for slots in (schema.inputs, schema.outputs)
        )
    types: dict[str, ir.TypeProtocol | None] = {
        parameter: ir.TensorType(_FIXED[parameter]) for parameter in outputs if parameter in _FIXED
    }
    types |= {parameter: _unbound(names, known[0] if known else None) for parameter, names in allowed.items()}
    for parameter, dtype in reversed([*zip(_stretched(inputs, len(known)), known, strict=False)]):
        types |= {parameter: dtype} if parameter and dtype is not None else {}
    return [types.get(parameter) for parameter in _stretched(outputs, len(node.outputs))]


def _unbound(names: Collection[str], first: ir.TypeProtocol | None) -> ir.TypeProtocol | None:
    """Type of an output whose parameter no input has: the only one that it allows, else that of a first input of floats
    (GridSample, MultiHeadAttention's fourth output).
    """
    name = next(iter(names)) if len(names) == 1 else "" if first is None else f"tensor({first.dtype.name.lower()})"
    dtype = _FIXED.get(name) if name in names else None
    return ir.TensorType(dtype) if dtype and (len(names) == 1 or dtype.is_floating_point()) else None


def _stretched(slots: Sequence[str], count: int) -> list[str]:
    """Type parameters of `count` values; the last slot stands for all further ones, where their number is open."""
    return [*slots, *([slots[-1]] * (count - len(slots)) if slots else [])][:count]
