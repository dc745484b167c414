"""Arrays by name in .npz files, as numpy writes and reads them, but by any name that ONNX gives a tensor.

np.savez takes names as keywords, so it has none for `file`; np.load gives the array of `a` for `a.npy`, too; and both
end a name at a NUL.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from truehalf.errors import StageError
from truehalf.output_files import written_whole

_ENDING = ".npy"
_LONGEST = 0xFFFF  # bytes of a member's name in a zip archive


@dataclass(frozen=True)
class Header:
    """What a file says of an array: its shape, its type, and whether its first axis is the one that varies fastest."""

    shape: tuple[int, ...]
    dtype: np.dtype
    fortran_order: bool = False


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write an .npz file whole.

    Raises:
        StageError: when a name is longer than an archive holds.
        ValueError: when an array holds objects of Python.
        OSError: as truehalf.output_files.written_whole.
    """
    for name in arrays:
        if len(f"{name}{_ENDING}".encode()) > _LONGEST:
            raise StageError(
                "not-supported",
                f"{path}: {name[:40]!r}... is a name of {len(name)} letters; expected at most {_LONGEST} bytes; rename "
                "the tensor",
            )
    with written_whole(path) as building, zipfile.ZipFile(building, "w") as file:
        for name, array in arrays.items():
            member = zipfile.ZipInfo("array")
            member.filename = f"{name}{_ENDING}"  # the constructor would cut it at a NUL
            with file.open(member, "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, np.asanyarray(array), allow_pickle=False)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays in an .npz file.

    Raises:
        ValueError: when a member is no array, or one of objects.
        OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error: when the archive cannot be read.
    """
    found: dict[str, np.ndarray] = {}
    with zipfile.ZipFile(path) as file:
        for name, member in members(file).items():
            with file.open(member) as stream:
                found[name] = np.lib.format.read_array(stream, allow_pickle=False)
    return found


def read_headers(path: Path) -> dict[str, Header]:
    """The headers of the arrays in an .npz file, by name; no array is read.

    Raises:
        As `read_arrays`.
    """
    with zipfile.ZipFile(path) as file:
        headers = {}
        for name, member in members(file).items():
            with file.open(member) as stream:
                headers[name] = read_header(stream, member.orig_filename)
    return headers


def members(file: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """The members of an archive by the names of the arrays in them."""
    return {member.orig_filename.removesuffix(_ENDING): member for member in file.infolist()}


def read_header(stream: Any, member: str) -> Header:
    """The header that an .npy stream starts with; the stream is then where the values begin.

    Raises:
        ValueError: when it is no array of numbers.
    """
    try:
        version = np.lib.format.read_magic(stream)
        reads = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran_order, dtype = reads(stream)
    except ValueError as error:
        raise ValueError(f"{member!r} in it is no array") from error
    if dtype.hasobject:
        raise ValueError(f"{member!r} in it is pickled, and unpickling runs code; save it as an array of numbers")
    return Header(tuple(shape), dtype, bool(fortran_order))
