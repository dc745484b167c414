"""Arrays by input name from an .npz file, or from a folder of them: a sample for each entry of their first axis.

Headers say how many there are. Rows are read one at a time, forward through a file, so that a file larger than memory
streams; those of a purpose therefore come in the order in which they lie there.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from truehalf.config.schema import Config
from truehalf.data.arrays import Header, members, read_header, read_headers
from truehalf.data.drawn import Arrays, Drawn, TooFew
from truehalf.data.images import left_out, same_content
from truehalf.errors import StageError

_BROKEN = (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error, RuntimeError)
_CHUNK = 1 << 22  # bytes that are skipped at once


class ArrayRows(Drawn):
    """Rows of arrays in files; one row of one file in memory at a time."""

    _open: _RowReader | None = None

    def __init__(self, rows: Sequence[tuple[Path, int]], left_out: dict[str, list[str]] | None = None) -> None:
        super().__init__([f"{path.stem}[{row}]" for path, row in rows], [path for path, _ in rows], left_out=left_out)
        self._rows = rows

    def item(self, position: int) -> Arrays:
        path, row = self._rows[position]
        if self._open is None or self._open.path != path:
            self._close()
            self._open = _RowReader(path)
        return Arrays(self.names[position], self._open.row(row))

    def _close(self) -> None:
        if self._open is not None:
            self._open.close()

    def __del__(self) -> None:
        self._close()


def drawn(config: Config, root: Path, purpose: str, first: int, count: int) -> ArrayRows:
    """Rows `first` to `first + count - 1` of an order fixed by the seed.

    Raises:
        StageError: when a file cannot be read, arrays in it differ in their first axis, or there are fewer rows.
    """
    assert config.data.file is not None, "validated: data.source=npz has a file"
    place = root / config.data.file
    files = sorted(place.glob("*.npz")) if place.is_dir() else [place]
    if not files:
        message = f"data.file: {place} holds no .npz file; expected an .npz file, or a folder of them"
        raise StageError("file-missing", message)
    headers = {path: _headers(path) for path in files}
    same = same_content(files)
    rows = [(path, row) for path in files if path not in same for row in range(_length(path, headers[path]))]
    if len(rows) < first + count:
        raise TooFew(f"data.file: {place} holds {len(rows)} different samples", len(rows), purpose, first + count)
    order = np.random.default_rng(config.data.seed).permutation(len(rows))
    chosen = sorted(int(i) for i in order[first : first + count])
    return ArrayRows([rows[i] for i in chosen], left_out(same, place if place.is_dir() else place.parent))


def headers_of(config: Config, root: Path) -> dict[str, Header]:
    """Shape, with the axis of samples, and type of the arrays in `data.file`, by name; of a folder, in its first file.

    Raises:
        StageError: when it cannot be read, or holds none.
    """
    assert config.data.file is not None, "validated: data.source=npz has a file"
    place = root / config.data.file
    first = next(iter(sorted(place.glob("*.npz"))), place) if place.is_dir() else place
    return _headers(first)


def _headers(path: Path) -> dict[str, Header]:
    try:
        return read_headers(path)
    except FileNotFoundError as error:
        message = f"data.file: no such file: {path}; expected an .npz file, or a folder of them"
        raise StageError("file-missing", message) from error
    except _BROKEN as error:
        raise _unreadable(path, error) from error


def _length(path: Path, headers: dict[str, Header]) -> int:
    lengths = {name: header.shape[0] if header.shape else None for name, header in headers.items()}
    if len(set(lengths.values())) != 1 or None in lengths.values():
        message = f"data.file: {path}: expected arrays with as many samples on axis 0, got {lengths}"
        raise StageError("wrong-shape", message)
    return next(iter(lengths.values())) or 0


def _unreadable(path: Path, error: Exception) -> StageError:
    message = f"data.file: {path}: expected arrays in .npz, got a file that cannot be read ({error})"
    return StageError("file-unreadable", message)


class _RowReader:
    """The rows of a file's arrays."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = zipfile.ZipFile(path)
            self._arrays = {name: _MemberRows(self._file, member) for name, member in members(self._file).items()}
        except _BROKEN as error:
            raise _unreadable(path, error) from error

    def row(self, number: int) -> dict[str, np.ndarray]:
        try:
            return {name: array.row(number) for name, array in self._arrays.items()}
        except _BROKEN as error:
            raise _unreadable(self.path, error) from error

    def close(self) -> None:
        if hasattr(self, "_file"):
            self._file.close()


class _MemberRows:
    """The rows of one array, read forward; a row before the last one read starts again at the first."""

    def __init__(self, file: zipfile.ZipFile, member: zipfile.ZipInfo) -> None:
        self._file, self._member = file, member
        self._whole: np.ndarray | None = None
        self._start()
        if self._header.fortran_order:  # its rows do not lie together
            self._whole = np.lib.format.read_array(self._file.open(self._member), allow_pickle=False)

    def _start(self) -> None:
        self._stream: IO[Any] = self._file.open(self._member)
        self._header = read_header(self._stream, self._member.orig_filename)
        self._next = 0

    def row(self, number: int) -> np.ndarray:
        if self._whole is not None:
            return np.array(self._whole[number], order="C")
        if number < self._next:
            self._stream.close()
            self._start()
        shape, dtype = self._header.shape[1:], self._header.dtype
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        to_skip = (number - self._next) * size
        while to_skip:
            to_skip -= len(self._bytes(min(to_skip, _CHUNK)))
        self._next = number + 1
        return np.ndarray(shape, dtype, self._bytes(size)).copy()

    def _bytes(self, size: int) -> bytes:
        read: bytes = self._stream.read(size)
        if len(read) < size:
            raise EOFError(f"{self._member.orig_filename!r} ends early")
        return read
