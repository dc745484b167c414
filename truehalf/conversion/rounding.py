"""Float32 constants rounded to float16: to nearest, ties to even; a finite |x| beyond 65504 becomes 65504, Inf stays.

A tensor above 1 MiB is rounded whenever it is read (it is read when the model is saved), so that a model larger than
memory passes through.
"""

from __future__ import annotations

import contextlib

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from truehalf.float16 import MAX

_BLOCK = 1 << 16  # elements; they fit into a second-level cache
LAZY_FROM = 1 << 20  # bytes


def half(tensor: ir.TensorProtocol, name: str | None, *, clamps: bool = True) -> ir.TensorProtocol:
    """Make a float16 tensor of a float32 one.

    Args:
        tensor: read now when it is small, later when it is large (it must not change until then).
        clamps: False: a finite |x| from 65520 on becomes Inf, as a Cast makes it.
    """

    def made() -> ir.TensorProtocol:
        try:
            return ir.tensor(_rounded(tensor.numpy(), clamps), name=name)
        finally:
            release(tensor)

    if tensor.nbytes <= LAZY_FROM:
        return made()
    return ir.LazyTensor(made, ir.DataType.FLOAT16, ir.Shape(tensor.shape.numpy()), name=name)


def _rounded(exact: NDArray[np.float32], clamps: bool) -> NDArray[np.float16]:
    result = np.empty(exact.shape, np.float16)
    source, target = exact.reshape(-1), result.reshape(-1)
    for start in range(0, source.size, _BLOCK):
        block = source[start : start + _BLOCK]
        if clamps:
            block = np.where(np.isinf(block), block, np.clip(block, -MAX, MAX))
        with np.errstate(over="ignore"):
            target[start : start + _BLOCK] = block
    return result


def release(tensor: ir.TensorProtocol) -> None:
    """Let a mapped file go again, so that weights do not pile up."""
    if isinstance(tensor, ir.ExternalTensor):
        with contextlib.suppress(BufferError):  # another reference still holds the mapped array
            tensor.release()
