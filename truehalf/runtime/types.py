"""Types of values that onnx leaves open, by ONNX's schemas and one rule for the operators of ONNX Runtime.

ONNX           an output has the type of an input of the same type parameter, or the one that its schema states:
               GroupNormalization of FP16, which onnx types by a function that it cannot type
com.microsoft  the first output has the type of the first float input, of QLinear... that of the first integer one:
               FusedConv, MultiHeadAttention, SkipLayerNormalization and the others in files that ONNX Runtime has
               optimised or quantized. Those of _OPEN stay open, and so do further outputs but _ALIKE.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import onnx_ir as ir

from truehalf.ir.facts import all_nodes
from truehalf.ir.normalize import InferTypes
from truehalf.ir.slots import schema_of

_FIXED = {f"tensor({dtype.name.lower()})": dtype for dtype in ir.DataType}
# Operators of com.microsoft whose first output has no float, or the type of no input.
_OPEN = re.compile(
    r"\w*(Search|Integer|Integer16|Hash3|Indexer|Sampling)|QGemm|Quantize\w*|DynamicTimeWarping|IsAllFinite"
)
# Further outputs of the first one's type: keys and values of the past, the sum of input and skip.
_ALIKE = {"Attention": (0, 1, 2), "Skip": (0, 3)}


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
    schema = schema_of(node)
    known = [None if value is None else value.type for value in node.inputs]
    if schema is None:
        return _contributed(node, known)
    inputs, outputs = (
        [slot.type_str if slot.is_homogeneous else "" for slot in slots] for slots in (schema.inputs, schema.outputs)
    )
    by_parameter = {
        parameter: dtype
        for parameter, dtype in reversed([*zip(_stretched(inputs, len(known)), known, strict=False)])
        if parameter and dtype is not None
    }
    fixed = {parameter: ir.TensorType(_FIXED[parameter]) for parameter in outputs if parameter in _FIXED}
    return [by_parameter.get(parameter, fixed.get(parameter)) for parameter in _stretched(outputs, len(node.outputs))]


def _contributed(node: ir.Node, known: Sequence[ir.TypeProtocol | None]) -> list[ir.TypeProtocol | None]:
    """Types of the outputs of an operator of com.microsoft, by the types of its inputs, None where not known."""
    if node.domain != "com.microsoft" or _OPEN.fullmatch(node.op_type):
        return []
    is_integer = node.op_type.startswith("QLinear")
    typed = (of_input for of_input in known if of_input is not None and of_input.dtype is not None)
    first = next((of_input for of_input in typed if of_input.dtype.is_floating_point() != is_integer), None)
    alike = next((places for part, places in _ALIKE.items() if part in node.op_type), (0,))
    return [first if place in alike else None for place in range(len(node.outputs))]


def _stretched(slots: Sequence[str], count: int) -> list[str]:
    """Type parameters of `count` values; the last slot stands for all further ones, where their number is open."""
    return [*slots, *([slots[-1]] * (count - len(slots)) if slots else [])][:count]
