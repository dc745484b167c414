"""Float32 constants rounded to float16, block by block, with what was lost on the way counted.

    x -> sign(x) * clamp      where |x| > clamp        (finite x only; only when a clamp is given)
    x -> nearest float16      ties to even, sign kept  (from 2^-25 down that is a zero)
    Inf -> Inf, NaN -> NaN

A tensor above 1 MiB is rounded whenever it is read (it is read when the model is saved), a few MiB at a time, so that
a model larger than memory passes through. Its losses are counted the first time only.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
from numpy.typing import NDArray

from truehalf.float16 import MAX

_BLOCK = 1 << 16  # elements; float32 block, float16 block and their bits fit into a second-level cache
_BLOCKS_A_WRITE = 16
_LAZY_FROM = 1 << 20  # bytes
_MAGNITUDE, _FIRST_NORMAL, _LARGEST = np.uint16(0x7FFF), np.uint16(0x0400), np.uint16(0x7BFF)


@dataclass
class Losses:
    """Elements of constants that became float16.

    Attributes:
        rounded: all of them.
        underflowed: nonzero before, zero after.
        subnormal: nonzero after, but below 2^-14, where fewer than 11 significant bits are left.
        clamped: finite before, beyond the clamp, set to it.
        overflowed: finite before, Inf after (without a clamp).
    """

    rounded: int = 0
    underflowed: int = 0
    subnormal: int = 0
    clamped: int = 0
    overflowed: int = 0
    _pending: dict[_Half, None] = field(default_factory=dict, repr=False, compare=False)

    def settle(self) -> None:
        """Count the tensors that nothing has read yet."""
        for tensor in list(self._pending):
            for _ in tensor.blocks():
                pass

    def as_dict(self) -> dict[str, int]:
        """The counts, complete: `settle` is called first."""
        self.settle()
        return self._counts()

    def add(self, other: Losses) -> None:
        for name, count in other._counts().items():
            setattr(self, name, getattr(self, name) + count)

    def _counts(self) -> dict[str, int]:
        names = ("rounded", "underflowed", "subnormal", "clamped", "overflowed")
        return {name: getattr(self, name) for name in names}


def half(
    tensor: ir.TensorProtocol,
    name: str | None,
    losses: Losses,
    *,
    clamp: float | None = MAX,
) -> ir.TensorProtocol:
    """A float16 tensor of a float32 one.

    Args:
        tensor: float32, any shape; read now when it is small, later when it is large (it must not change until then).
        name: of the result.
        losses: what is lost is added here: at once for a small tensor, when it is first read for a large one.
        clamp: the largest finite magnitude that is let through; None: beyond 65520 a value becomes Inf.
    """
    rounded = _Half(tensor, name, losses, clamp)
    if tensor.nbytes > _LAZY_FROM:
        return rounded
    return ir.tensor(rounded.numpy(), name=name)


class _Half(ir.LazyTensor):
    """Rounds its source whenever it is read, and holds one block of the result at a time when it is written."""

    def __init__(self, source: ir.TensorProtocol, name: str | None, losses: Losses, clamp: float | None) -> None:
        shape = source.shape
        assert isinstance(shape, ir.Shape)
        super().__init__(lambda: ir.tensor(self.numpy()), ir.DataType.FLOAT16, shape, name=name)
        self.source, self.losses, self.clamp = source, losses, clamp
        losses._pending[self] = None

    def numpy(self) -> NDArray[np.float16]:
        result = np.empty(self.source.size, np.float16)
        start = 0
        for block in self.blocks():
            result[start : start + block.size] = block
            start += block.size
        return result.reshape(self.shape.numpy())

    def __array__(self, dtype: npt.DTypeLike | None = None) -> NDArray[Any]:
        return np.asarray(self.numpy(), dtype)

    def tobytes(self) -> bytes:
        return self.numpy().astype("<f2", copy=False).tobytes()

    def tofile(self, file: BinaryIO) -> None:
        blocks = self.blocks(_BLOCKS_A_WRITE * _BLOCK)
        with ThreadPoolExecutor(1) as ahead:  # rounds the next block while this one is written
            following = ahead.submit(next, blocks, None)
            while (block := following.result()) is not None:
                following = ahead.submit(next, blocks, None)
                file.write(block.astype("<f2", copy=False).data)

    def blocks(self, length: int = 1 << 20) -> Iterator[NDArray[np.float16]]:
        """The elements in order; a block is valid until the next but one is asked for."""
        exact = self.source.numpy().reshape(-1)
        lost = Losses()
        try:
            targets = [np.empty(min(length, exact.size), np.float16) for _ in range(2)]
            for start in range(0, exact.size, length):
                target = targets[start // length % 2][: exact.size - start]
                for offset in range(0, target.size, _BLOCK):
                    rounded = target[offset : offset + _BLOCK]
                    first = start + offset
                    _round(exact[first : first + rounded.size], rounded, self.clamp, lost)
                yield target
        finally:
            del exact
            if isinstance(self.source, ir.ExternalTensor):
                with contextlib.suppress(BufferError):  # another reference still holds the mapped array
                    self.source.release()
        if self in self.losses._pending:
            del self.losses._pending[self]
            self.losses.add(lost)


def _round(exact: NDArray[np.float32], target: NDArray[np.float16], clamp: float | None, lost: Losses) -> None:
    lost.rounded += exact.size
    with np.errstate(all="ignore"):
        target[...] = exact
    bits = target.view(np.uint16) & _MAGNITUDE
    limit = _LARGEST if clamp is None else np.float16(min(clamp, MAX)).view(np.uint16)
    if bits.size and bits.max() >= limit:
        beyond = np.isfinite(exact) & (np.abs(exact) > (MAX if clamp is None else clamp))
        if clamp is None:
            lost.overflowed += int(np.count_nonzero(beyond & np.isinf(target)))
        else:
            lost.clamped += int(np.count_nonzero(beyond))
            target[beyond] = np.copysign(np.float16(clamp), target[beyond])
    small = int(np.count_nonzero(bits < _FIRST_NORMAL))
    if small:
        zeros = bits.size - int(np.count_nonzero(bits))
        lost.subnormal += small - zeros
        lost.underflowed += zeros - (exact.size - int(np.count_nonzero(exact))) if zeros else 0
