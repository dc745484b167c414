"""Ranges of element types, and the Cast that a Cast of a Cast is equal to.

Cast(Cast(x: s, m), t) = Cast(x: s, t)    exactly, when m holds every value of s
                                          but for a rounding, when s, m and t are floats and m does not
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from truehalf.conversion.rounding import LAZY_FROM, half

_T = ir.DataType
_FLOATS = {_T.FLOAT16, _T.BFLOAT16, _T.FLOAT, _T.DOUBLE}
_SIGNED = [_T.INT8, _T.INT16, _T.INT32, _T.INT64]
_UNSIGNED = [_T.UINT8, _T.UINT16, _T.UINT32, _T.UINT64]
# Bits of an integer's magnitude, and the largest magnitude in bits up to which a float holds every integer.
_BITS = (
    {_T.BOOL: 1} | dict(zip(_SIGNED, (7, 15, 31, 63), strict=True)) | dict(zip(_UNSIGNED, (8, 16, 32, 64), strict=True))
)
_SIGNIFICAND = {_T.FLOAT16: 11, _T.BFLOAT16: 8, _T.FLOAT: 24, _T.DOUBLE: 53}
KNOWN = _FLOATS | set(_BITS)
_FLOAT_HOLDS = {(_T.FLOAT16, _T.FLOAT), (_T.BFLOAT16, _T.FLOAT)} | {(s, _T.DOUBLE) for s in _FLOATS}


def holds(wide: ir.DataType, narrow: ir.DataType) -> bool:
    """Whether type `wide` holds every value of type `narrow`, so that a Cast there and back changes nothing."""
    if wide == narrow or (narrow, wide) in _FLOAT_HOLDS:
        return True
    if narrow not in _BITS or wide == _T.BOOL:
        return False
    if wide in _SIGNIFICAND:
        return _BITS[narrow] <= _SIGNIFICAND[wide]
    fits = wide in _BITS and _BITS[narrow] <= _BITS[wide]
    return fits and (narrow not in _SIGNED or wide in _SIGNED)


def chain_rule(s: ir.DataType | None, m: ir.DataType | None, t: ir.DataType | None) -> str | None:
    """By which rule a Cast from s to m and on to t is one from s to t: "widening", "rounding", or None for neither."""
    if s is None or m is None or t is None or not {s, m, t} <= KNOWN or s == m:
        return None
    out_of_range = s in _BITS and m in _FLOATS and t in _BITS and t != _T.BOOL and not holds(t, s)
    if holds(m, s):  # what a float out of an integer's range becomes is undefined: leave that Cast as it is
        return None if out_of_range else "widening"
    return "rounding" if {s, m, t} <= _FLOATS else None


def has_cast(tensor: ir.TensorProtocol, dtype: ir.DataType) -> bool:
    """Whether the Cast of a tensor is defined: not for other types than KNOWN, nor beyond an integer's range."""
    if not {tensor.dtype, dtype} <= KNOWN:
        return False
    if tensor.dtype in _FLOATS and dtype in _BITS and dtype != _T.BOOL:
        limits, array = np.iinfo(dtype.numpy()), tensor.numpy().astype(np.float64)
        beyond = float(int(limits.max) + 1)  # exact, where the largest int64 is not
        return bool(np.all((array >= limits.min) & (array <= limits.max) & (array < beyond)))  # NaN included
    return True


def cast_tensor(tensor: ir.TensorProtocol, dtype: ir.DataType, name: str) -> ir.TensorProtocol:
    """The Cast of a tensor for which `has_cast`; of a large one it is computed when it is read."""
    if (tensor.dtype, dtype) == (_T.FLOAT, _T.FLOAT16):
        return half(tensor, name, clamps=False)

    def result() -> ir.TensorProtocol:
        with np.errstate(over="ignore"):
            return ir.tensor(tensor.numpy().astype(dtype.numpy()), dtype=dtype, name=name)

    if tensor.nbytes <= LAZY_FROM:
        return result()
    return ir.LazyTensor(result, dtype, ir.Shape(tensor.shape.numpy()), name=name)
