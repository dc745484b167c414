"""Operators that onnx's reference computes as ONNX Runtime does, and since which opset.

Proven case by case, for every version of each operator, in tests/truehalf/repairs/test_foldable.py; what has no case
there is not folded. Below opset 13, the reference takes Softmax with the meaning that it has since; up to opset 13,
BatchNormalization gives other values. Clip of -inf without a least value, cubic Resize, LRN, and LayerNormalization
of float16 differ at every opset. Range of tenths does: ONNX Runtime adds the step up, with a rounding each time.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from truehalf.repairs.rewrite import FLOATS, constant_of

_SINCE = {
    7: (
        *("Abs", "Add", "And", "ArgMax", "ArgMin", "Atan", "Cast", "Ceil", "Concat", "Cos", "Div", "Equal"),
        *("Exp", "Flatten", "Floor", "Gather", "Gemm", "Greater", "Identity", "Less", "Log", "MatMul", "Max", "Min"),
        *("Mul", "Neg", "Not", "Or", "Pad", "Pow", "Reciprocal", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd"),
        *("ReduceSum", "Relu", "Reshape", "Shape", "Sigmoid", "Sin", "Size", "Slice", "Split", "Sqrt", "Squeeze"),
        *("Sub", "Sum", "Tan", "Tanh", "Tile", "Transpose", "Unsqueeze", "Xor"),
    ),
    8: ("Expand",),
    9: ("ConstantOfShape", "Erf", "IsNaN", "NonZero", "Sign", "Where"),
    10: ("IsInf", "Mod", "TopK"),
    11: ("CumSum", "GatherND", "OneHot", "Range", "Round", "ScatterElements", "ScatterND"),
    12: ("Einsum", "GreaterOrEqual", "LessOrEqual"),
    13: ("LogSoftmax", "Softmax"),
    14: ("Trilu",),
}
FOLDABLE = {op_type: opset for opset, op_types in _SINCE.items() for op_type in op_types}
SUMS = {
    *("CumSum", "Einsum", "Gemm", "LogSoftmax", "MatMul", "ReduceMean", "ReduceProd", "ReduceSum", "Softmax", "Sum"),
}  # in float16, what they give depends on the type and order in which they add


def is_foldable(node: ir.Node, opset: int) -> bool:
    """Whether the result of a typed node on constants may be taken from onnx's reference."""
    if node.domain != "" or opset < FOLDABLE.get(node.op_type, opset + 1):
        return False
    types = {value.dtype for value in (*node.inputs, *node.outputs) if value is not None and value.dtype is not None}
    if not types <= _TYPES or (node.op_type in SUMS and ir.DataType.FLOAT16 in types):
        return False
    return node.op_type != "Range" or not types & FLOATS or all(map(_adds_exactly, node.inputs))


def _adds_exactly(value: ir.Value | None) -> bool:
    """Whether a constant holds multiples of 1/256 below 2^15: float32 adds them without rounding."""
    array = constant_of(value)
    return array is not None and bool(((array * 256 == np.rint(array * 256)) & (np.abs(array) < 1 << 15)).all())


_TYPES = {
    *(ir.DataType.BOOL, ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16),
    *(ir.DataType.INT8, ir.DataType.INT16, ir.DataType.INT32, ir.DataType.INT64),
    *(ir.DataType.UINT8, ir.DataType.UINT16, ir.DataType.UINT32, ir.DataType.UINT64),
}
