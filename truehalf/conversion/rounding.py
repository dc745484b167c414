"""Float32 constants rounded to float16: to nearest, ties to even; a finite |x| beyond 65504 becomes 65504, Inf stays.

A tensor above 1 MiB is rounded whenever it is read (it is read when the model is saved), and written block by block, so
that a model larger than memory passes through.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from truehalf.float16 import MAX

_BLOCK = 1 << 18  # elements
LAZY_FROM = 1 << 20  # bytes


def half(tensor: ir.TensorProtocol, name: str | None, *, clamps: bool = True) -> ir.TensorProtocol:
    """Make a float16 tensor of a float32 one.

    Args:
        tensor: read now when it is small, later when it is large (it must not change until then).
        clamps: False: a finite |x| from 65520 on becomes Inf, as a Cast makes it.
    """
    rounded = _Half(tensor, name, clamps)
    return rounded if tensor.nbytes > LAZY_FROM else ir.tensor(rounded.numpy(), name=name)


class _Half(ir.LazyTensor):
    """Rounds its source whenever it is read."""

    def __init__(self, source: ir.TensorProtocol, name: str | None, clamps: bool) -> None:
        shape = ir.Shape(source.shape.numpy())
        super().__init__(self._rounded, ir.DataType.FLOAT16, shape, name=name)
        self._source, self._clamps = source, clamps

    def _rounded(self) -> ir.TensorProtocol:
        result = np.empty(self._source.size, np.float16)
        for start, block in self._blocks():
            result[start : start + block.size] = block
        return ir.tensor(result.reshape(self._source.shape.numpy()), name=self.name)

    def tofile(self, file: BinaryIO) -> None:
        for _, block in self._blocks():
            file.write(block.astype("<f2", copy=False).data)

    def _blocks(self) -> Iterator[tuple[int, NDArray[np.float16]]]:
        """The elements in order, each block with its place."""
        exact = self._source.numpy().reshape(-1)
        for start in range(0, exact.size, _BLOCK):
            yield start, _rounded(exact[start : start + _BLOCK], self._clamps)
        del exact
        release(self._source)


def _rounded(block: NDArray[np.float32], clamps: bool) -> NDArray[np.float16]:
    if clamps:
        block = np.where(np.isinf(block), block, np.clip(block, -MAX, MAX))
    with np.errstate(over="ignore"):
        return block.astype(np.float16)


def release(tensor: ir.TensorProtocol) -> None:
    """Let a mapped file go again, so that weights do not pile up."""
    if isinstance(tensor, ir.ExternalTensor):
        with contextlib.suppress(BufferError):  # another reference still holds the mapped array
            tensor.release()
