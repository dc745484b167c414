"""Operators that onnx's reference computes as ONNX Runtime does, and since which opset.

Proven case by case, for every version of each operator, in tests/truehalf/repairs/test_foldable.py; what has no case
in it is not folded. Below opset 13, the reference computes Softmax by its later definition; up to opset 13,
BatchNormalization gives other values. Clip of -inf without a least value, cubic Resize, LRN, and LayerNormalization
of float16 differ at every opset. Range of tenths does: ONNX Runtime sums the steps, with a rounding each time.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from truehalf.ir.facts import constant_of
from truehalf.ir.ops import TABLE, adds_up
from truehalf.repairs.rewrite import FLOATS

FOLDABLE = {op_type: row.folds for op_type, row in TABLE.items() if row.folds}


def is_foldable(node: ir.Node, opset: int) -> bool:
    """Whether the result of a typed node on constants may be taken from onnx's reference."""
    if node.domain != "" or opset < FOLDABLE.get(node.op_type, opset + 1):
        return False
    types = {value.dtype for value in (*node.inputs, *node.outputs) if value is not None and value.dtype is not None}
    # in float16, what a sum gives depends on the type and order in which it adds
    if not types <= _TYPES or (adds_up(node) and ir.DataType.FLOAT16 in types):
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
