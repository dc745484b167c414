"""Arrays by name: in .npz files, in Polygraphy's JSON, in memory; cut into samples. Nothing is unpickled."""

from __future__ import annotations

import base64
import contextlib
import io
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from truehalf.data.samples import Arrays, Samples
from truehalf.errors import StageError, first_line
from truehalf.files import read_json, written_whole

EXPECTED = "expected an .npz file, a folder of .npz files, a JSON file of Polygraphy, or a dict of arrays by input name"


@dataclass(frozen=True)
class ArrayFile:
    """Arrays by name in a file or in memory.

    Attributes:
        label: file's name without its ending, or "feed" and its number.
        headers: arrays with their shape and type, and in a file without their values.
        arrays: reads them.
        path: of the file; None in memory.
    """

    label: str
    headers: Mapping[str, np.ndarray]
    arrays: Callable[[], Arrays]
    path: Path | None = None


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write an .npz file whole.

    Raises:
        ValueError: an array holds objects of Python.
        OSError: as truehalf.files.written_whole.
    """
    with written_whole(path) as building, zipfile.ZipFile(building, "w") as archive:
        for name, array in arrays.items():  # numpy.savez takes no array that is called as one of its own arguments
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, np.asanyarray(array), allow_pickle=False)


def read_arrays(path: Path) -> Arrays:
    """Read the arrays in an .npz file.

    Raises:
        StageError: file-missing, or file-unreadable for a file that is no archive of arrays of numbers.
    """
    with _archive(path) as file:
        return dict(file.items())


def read_headers(path: Path) -> Arrays:
    """Read shape and type of the arrays in an .npz file, as arrays of zeros that take no memory.

    Raises:
        StageError: as `read_arrays`.
    """
    with _archive(path) as file:
        return {name: _header(name, file) for name in file.files}


@contextlib.contextmanager
def _archive(path: Path) -> Iterator[Any]:
    """Open an .npz file."""
    try:
        if not zipfile.is_zipfile(path) and path.is_file():
            raise ValueError(f"it is a broken archive, or none ({path.stat().st_size} bytes)")
        with np.load(path, allow_pickle=False) as file:
            yield file
    except FileNotFoundError as error:
        raise StageError("file-missing", f"{path}: no such file; {EXPECTED}") from error
    except (OSError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise StageError("file-unreadable", f"{path}: {EXPECTED}, but {error}") from error


def _header(name: str, file: Any) -> np.ndarray:
    with file.zip.open(f"{name}.npy") as stream:
        is_first = np.lib.format.read_magic(stream) == (1, 0)
        reads = np.lib.format.read_array_header_1_0 if is_first else np.lib.format.read_array_header_2_0
        shape, _, dtype = reads(stream)
    if dtype.hasobject:
        raise ValueError(f"{name!r} in it is pickled, and unpickling runs code; save it as an array of numbers")
    return np.broadcast_to(np.zeros((), dtype), shape)


def npz_files(place: Path) -> list[ArrayFile]:
    """Open an .npz file or a folder of them: headers at once, arrays when asked for, those of the last file kept.

    Raises:
        StageError: file-missing where a folder holds none; else as `read_arrays`.
    """
    paths = sorted(place.glob("*.npz")) if place.is_dir() else [place]
    if not paths:
        raise StageError("file-missing", f"{place} holds no .npz file; {EXPECTED}")
    read = lru_cache(maxsize=1)(read_arrays)
    return [ArrayFile(path.stem, read_headers(path), partial(read, path), path) for path in paths]


def open_arrays(source: Any) -> list[ArrayFile]:
    """Open the arrays that come with an ONNX file: a path, arrays by input name, or an iterable of such mappings.

    Raises:
        StageError: it is none of these, or cannot be read.
    """
    if isinstance(source, (str, Path)):
        path = Path(source)
        return _from_json(path) if path.suffix == ".json" and path.is_file() else npz_files(path)
    if isinstance(source, Mapping):
        return [_in_memory("feed", source)]
    feeds = list(source) if hasattr(source, "__iter__") else [source]
    if not all(isinstance(feed, Mapping) for feed in feeds):
        raise StageError("wrong-type", f"samples: {EXPECTED}, got {type(source).__name__}")
    return [_in_memory(f"feed[{number}]", feed) for number, feed in enumerate(feeds)]


def _in_memory(label: str, feed: Mapping[str, Any]) -> ArrayFile:
    arrays: Arrays = {}
    for name, array in feed.items():
        try:
            detached = array.detach() if hasattr(array, "detach") else array  # torch's, of a graph that has gradients
            arrays[str(name)] = np.asarray(detached)
        except (ValueError, TypeError, RuntimeError) as error:
            raise StageError("wrong-type", f"input {name!r}: expected an array, {first_line(error)}") from error
    return ArrayFile(label, arrays, lambda: arrays)


def array_files(files: Sequence[ArrayFile], rows: Sequence[int | None], folder: Path | None = None) -> Samples:
    """Take a sample for each entry of axis 0 of the arrays in some files.

    Args:
        rows: of each file the length of axis 0; None: the file is one sample as it stands.
    """
    places: list[tuple[ArrayFile, int | None]] = []
    names: list[str] = []
    for file, count in zip(files, rows, strict=True):
        places += [(file, row) for row in (range(count) if count is not None else [None])]
        names += [file.label] if count in (None, 1) else [f"{file.label}[{row}]" for row in range(count or 0)]

    def load(position: int) -> Arrays:
        file, row = places[position]
        arrays = file.arrays()
        return arrays if row is None else {name: np.array(array[row], order="C") for name, array in arrays.items()}

    return Samples(names, load, [file.path for file, _ in places if file.path is not None], folder)


def rows_of(arrays: Mapping[str, np.ndarray]) -> int | None:
    """Length of axis 0 that all arrays have; None where they differ or have no axis."""
    lengths = {array.shape[0] if array.ndim else None for array in arrays.values()}
    return lengths.pop() if len(lengths) == 1 else None


def _from_json(path: Path) -> list[ArrayFile]:
    """Read feeds as Polygraphy's save_json writes them: a list of {input: {"array": an .npy file in base64}}."""
    content = read_json(path, expected="JSON")
    feeds = content if isinstance(content, list) else [content]
    try:
        read = [{name: _decoded(entry["array"]) for name, entry in feed.items()} for feed in feeds]
    except (AttributeError, KeyError, TypeError) as error:
        wanted = "expected a list of feeds, numpy's arrays by input name, as Polygraphy's save_json writes them"
        raise StageError("wrong-file", f"{path}: {wanted}") from error
    except (ValueError, EOFError) as error:
        raise StageError("file-unreadable", f"{path}: an array in it cannot be read: {error}") from error
    return [_in_memory(f"{path.stem}[{number}]", feed) for number, feed in enumerate(read)]


def _decoded(text: str) -> np.ndarray:
    array: np.ndarray = np.load(io.BytesIO(base64.b64decode(text, validate=True)), allow_pickle=False)
    return array
