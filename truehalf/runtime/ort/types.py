"""Types of values that onnx leaves open, by ONNX's schemas and a table of the operators that ONNX Runtime has beside.

An output has the type of an input of the same type parameter, or the one that its schema states. GroupNormalization of
FP16: onnx types it by the function that it stands for, which it cannot type. Operators of com.microsoft: onnx does not
know them, and ONNX Runtime lists their schemas in no public function.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import onnx_ir as ir

from truehalf.ir.facts import all_nodes
from truehalf.ir.normalize import InferTypes
from truehalf.ir.slots import schema_of

_FIXED = {f"tensor({dtype.name.lower()})": dtype for dtype in ir.DataType}
_BOOL, _INT32, _INT64, _FLOAT = ir.DataType.BOOL, ir.DataType.INT32, ir.DataType.INT64, ir.DataType.FLOAT

# What each output has its type of: the position of an input, or a type; further outputs stay open.
_Origins = Sequence[int | ir.DataType | None]

# Operators of com.microsoft, by ContribOperators.md of ONNX Runtime 1.31, whose outputs are not all of the first
# input's type, as those of all others are.
_CONTRIBUTED: dict[str, _Origins] = {
    **dict.fromkeys(("BeamSearch", "DynamicTimeWarping", "WhisperBeamSearch"), (_INT32,)),
    **dict.fromkeys(("BitmaskBiasDropout", "BitmaskDropout"), (0,)),
    **dict.fromkeys(
        ("DequantizeBFP", "DequantizeWithOrder", "GemmFloat8", "MatMulInteger16", "MulInteger", "QGemm"), ()
    ),
    **dict.fromkeys(("GridSample", "MurmurHash3", "QuantizeBFP", "QuantizeWithOrder"), ()),
    **dict.fromkeys(("PackedSparseAttentionIndexer", "ReduceSumInteger", "SparseAttentionIndexer"), ()),
    **dict.fromkeys(("DequantizeLinear", "NGramRepeatBlock", "QLinearConcat", "QLinearWhere"), (1,)),
    **dict.fromkeys(("SparseToDenseMatMul", "WordConvEmbedding"), (1,)),
    **dict.fromkeys(("GatherBlockQuantized", "MatMulIntegerToFloat", "QuantizeLinear"), (2,)),
    **dict.fromkeys(("DecoderMaskedMultiHeadAttention", "MultiHeadAttention"), (0, 0, 0)),
    **dict.fromkeys(("GroupQueryAttention", "PagedAttention", "SparsePagedAttention"), (0, 3, 3)),
    **dict.fromkeys(("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"), (0, _FLOAT, _FLOAT, 0)),
    "BiasDropout": (0, _BOOL),
    "EmbedLayerNormalization": (2, _INT32, 2),
    "GatedDeltaNet": (0, _FLOAT, _FLOAT),
    "GemmaRotaryEmbedding": (1, 1),
    "IsAllFinite": (_BOOL,),
    "LinearAttention": (0, 3),
    "QAttention": (2, 2),
    "QLinearConv": (7,),
    "QEmbedLayerNormalization": (_FLOAT, _INT32),
    "RemovePadding": (0, _INT32, _INT32, _INT32),
    "Sampling": (_INT32, _FLOAT),
    "Unique": (0, _INT64, _INT64),
    "VarlenNGramHashMapping": (0, 0, 3, 0),
}


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
        for output, origin in zip(node.outputs, _origins(node), strict=False):
            if output.type is None and output.name:
                output.type = _type_of(node, origin)
                count += output.type is not None
    return count


def _origins(node: ir.Node) -> _Origins:
    schema = schema_of(node)
    if schema is None:
        ours = node.domain == "com.microsoft"
        return _CONTRIBUTED.get(node.op_type, [0] * len(node.outputs)) if ours else ()
    inputs, outputs = (
        [slot.type_str if slot.is_homogeneous else "" for slot in slots] for slots in (schema.inputs, schema.outputs)
    )
    read = _stretched(inputs, len(node.inputs))
    typed = [value is not None and value.type is not None for value in node.inputs]
    return [
        next((i for i, like in enumerate(read) if like and like == wanted and typed[i]), _FIXED.get(wanted))
        for wanted in _stretched(outputs, len(node.outputs))
    ]


def _stretched(slots: Sequence[str], count: int) -> list[str]:
    """The last one is of all further ones, too, where their number is open."""
    return [*slots, *([slots[-1]] * (count - len(slots)) if slots else [])][:count]


def _type_of(node: ir.Node, origin: int | ir.DataType | None) -> ir.TypeProtocol | None:
    if isinstance(origin, ir.DataType):
        return ir.TensorType(origin)
    value = node.inputs[origin] if origin is not None and origin < len(node.inputs) else None
    return None if value is None else value.type
