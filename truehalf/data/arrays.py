"""Arrays by name in .npz files, folders of them, Polygraphy's JSON and dicts.

In .npz files, as numpy writes and reads them, but by any name that ONNX gives a tensor:

np.savez takes names as keywords, so it has none for `file`; np.load gives the array of `a` for `a.npy`, too; and both
end a name at a NUL.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

import numpy as np

from truehalf.codes import coded
from truehalf.errors import StageError, first_line
from truehalf.files import read_json, written_whole

if TYPE_CHECKING:
    import onnx_ir as ir

_ENDING = ".npy"
_Content = TypeVar("_Content")
_EXPECTED = (
    "expected an .npz file, a folder of .npz files, a JSON file of Polygraphy, or a dict of arrays by input name"
)


@dataclass(frozen=True)
class Header:
    """What a file says of an array."""

    shape: tuple[int, ...]
    dtype: np.dtype


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write an .npz file whole.

    Raises:
        ValueError: when an array holds objects of Python.
        OSError: as truehalf.files.written_whole.
    """
    with written_whole(path) as building, zipfile.ZipFile(building, "w") as file:
        for name, array in arrays.items():
            member = zipfile.ZipInfo("array")
            member.filename = f"{name}{_ENDING}"  # the constructor would cut it at a NUL
            with file.open(member, "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, np.asanyarray(array), allow_pickle=False)


@contextlib.contextmanager
def _archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """An .npz file, opened to be read.

    Raises:
        StageError: file-missing; file-unreadable where it is no archive of arrays, now or as it is read.
    """
    try:
        with zipfile.ZipFile(path) as file:
            yield file
    except FileNotFoundError as error:
        raise StageError("file-missing", f"{path}: no such file; {_EXPECTED}") from error
    except zipfile.BadZipFile as error:
        message = f"{path}: {_EXPECTED}, got a broken file, or one that is none of them ({path.stat().st_size} bytes)"
        raise StageError("file-unreadable", message) from error
    except (OSError, ValueError, EOFError, RuntimeError, zlib.error) as error:  # RuntimeError: encrypted
        raise StageError("file-unreadable", f"{path}: expected arrays in .npz, but {error}") from error


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays in an .npz file.

    Raises:
        StageError: file-missing or file-unreadable.
    """
    return _read(path, lambda stream, member: np.lib.format.read_array(stream, allow_pickle=False))


def read_headers(path: Path) -> dict[str, Header]:
    """The headers of the arrays in an .npz file, by name; no array is read.

    Raises:
        As `read_arrays`.
    """
    return _read(path, read_header)


def _read(path: Path, reads: Callable[[IO[bytes], str], _Content]) -> dict[str, _Content]:
    """By name of the array, what is read of its member, whose file name is given, too."""
    found = {}
    with _archive(path) as file:
        for name, member in members(file).items():
            with file.open(member) as stream:
                found[name] = reads(stream, member.orig_filename)
    return found


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
        shape, _, dtype = reads(stream)
    except ValueError as error:
        raise ValueError(f"{member!r} in it is no array") from error
    if dtype.hasobject:
        raise ValueError(f"{member!r} in it is pickled, and unpickling runs code; save it as an array of numbers")
    return Header(tuple(shape), dtype)


def digest_of(arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of names, types, shapes and values, such as of the inputs of one sample."""
    found = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name]
        found.update(f"{name} {array.dtype} {array.shape}".encode())
        found.update(str(array.tolist()).encode() if array.dtype.kind == "O" else np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


# --- what holds samples: files, folders, objects ----------------------------------------------------------------------


class Source:
    """Arrays by name that lie in memory.

    Attributes:
        label: what its feeds are called.
        headers: shape and type by name.
    """

    def __init__(self, label: str, arrays: Mapping[str, np.ndarray]) -> None:
        self.label, self._arrays = label, dict(arrays)
        self.headers = {name: Header(array.shape, array.dtype) for name, array in self._arrays.items()}

    def load(self) -> dict[str, np.ndarray]:
        return self._arrays


class NpzSource(Source):
    """Arrays in an .npz file, read when they are asked for; their headers at once."""

    def __init__(self, path: Path) -> None:
        super().__init__(path.stem, {})
        self._path = path
        self.headers = read_headers(path)

    def load(self) -> dict[str, np.ndarray]:
        return read_arrays(self._path)


def sources_of(source: Any, inputs: Mapping[str, ir.Value], problems: list[str]) -> list[Source]:
    if isinstance(source, (str, Path)):
        return _from_path(Path(source), inputs, problems)
    if isinstance(source, Mapping):
        return [Source("feed", _as_arrays(source))]
    if isinstance(source, Sequence) and all(isinstance(each, Mapping) for each in source):
        return [Source(f"feed[{i}]", _as_arrays(each)) for i, each in enumerate(source)]
    problems.append(coded("wrong-type", f"{_EXPECTED}, got {type(source).__name__}"))
    return []


def _as_arrays(feed: Mapping[str, Any]) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {}
    for name, array in feed.items():
        try:
            detached = array.detach() if hasattr(array, "detach") else array  # torch's, of a graph that has gradients
            arrays[str(name)] = np.asarray(detached)
        except (ValueError, TypeError, RuntimeError) as error:
            raise StageError("wrong-type", f"input {name!r}: expected an array, {first_line(error)}") from error
    return arrays


def _from_path(path: Path, inputs: Mapping[str, ir.Value], problems: list[str]) -> list[Source]:
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix == ".npz" and file.is_file())
        if not files:
            problems.append(coded("file-missing", f"{path}: expected a folder of .npz files, there is none in it"))
        return [opened for file in files if (opened := _from_npz(file, problems)) is not None]
    if path.suffix == ".json" and path.is_file():
        return _from_json(path, inputs, problems)
    return [opened for opened in [_from_npz(path, problems)] if opened is not None]


def _from_npz(path: Path, problems: list[str]) -> Source | None:
    try:
        return NpzSource(path)
    except StageError as error:
        problems.append(str(error))
        return None


# --- Polygraphy's JSON ------------------------------------------------------------------------------------------------

# An object of one of its classes carries the class's name; an array is an .npy file within a string.
_CLASS = "polygraphy_class"


def _from_json(path: Path, inputs: Mapping[str, ir.Value], problems: list[str]) -> list[Source]:
    try:
        content = read_json(path, expected="JSON")
    except StageError as error:
        problems.append(str(error))
        return []
    feeds = [content] if isinstance(content, dict) and not _class_of(content) else content
    if not isinstance(feeds, list) or not all(isinstance(feed, dict) and not _class_of(feed) for feed in feeds):
        got = f"got an object of class {_class_of(content)}" if isinstance(content, dict) else "got something else"
        problems.append(coded("wrong-file", f"{path}: expected a list of feeds, objects of arrays by name, {got}"))
        return []
    sources = []
    for i, feed in enumerate(feeds):
        label, arrays = f"{path.stem}[{i}]", {}
        for name, encoded in feed.items():
            try:
                arrays[name] = _decoded(encoded, inputs.get(name))
            except (ValueError, OverflowError, TypeError, EOFError, zipfile.BadZipFile) as error:
                problems.append(coded("file-unreadable", f"{label}: {name!r} cannot be read as an array: {error}"))
        sources.append(Source(label, arrays))
    return [] if problems else sources


def _class_of(item: Mapping[str, Any]) -> str | None:
    return str(item[_CLASS]) if _CLASS in item else None


def _decoded(item: Any, value: ir.Value | None) -> np.ndarray:
    """An array of Polygraphy's, or numbers in nested lists."""
    if not isinstance(item, dict):
        return _typed(item, value)
    match _class_of(item):
        case "ndarray":
            return _npy(item.get("array"))
        case "LazyArray" | "LazyNumpyArray":
            return _decoded(item.get("values"), value)
        case other:
            raise ValueError(f"expected an array of numpy, got an object of class {other}; save it as a numpy array")


def _typed(item: Any, value: ir.Value | None) -> np.ndarray:
    """Numbers in JSON have no type, so they take that of their input; but 1.5 is no integer, and 1 no truth value."""
    array = np.array(item)
    if value is None or value.dtype is None or value.dtype.name == "STRING":
        return array
    wanted = value.dtype.numpy()
    changes_kind = array.dtype.kind != wanted.kind and (wanted.kind in "iub" or array.dtype.kind not in "iu")
    return array if changes_kind and array.size else np.array(item, wanted)


def _npy(text: Any) -> np.ndarray:
    if not isinstance(text, str):
        raise ValueError(f"expected its bytes as text, got {type(text).__name__}")
    array: np.ndarray = np.lib.format.read_array(io.BytesIO(base64.b64decode(text, validate=True)), allow_pickle=False)
    return array
