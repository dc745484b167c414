"""Arrays by name: in .npz files, in Polygraphy's JSON, in dicts. Nothing is unpickled."""

from __future__ import annotations

import base64
import contextlib
import io
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from truehalf.codes import coded
from truehalf.errors import StageError, first_line
from truehalf.files import read_json, written_whole

if TYPE_CHECKING:
    import onnx_ir as ir

Arrays = dict[str, np.ndarray]
_ENDING = ".npy"
EXPECTED = "expected an .npz file, a folder of .npz files, a JSON file of Polygraphy, or a dict of arrays by input name"


@dataclass(frozen=True)
class Header:
    """Shape and type of an array in a file."""

    shape: tuple[int, ...]
    dtype: np.dtype


@dataclass(frozen=True)
class ArrayFile:
    """Arrays by name in a file or in memory.

    Attributes:
        label: file's name without its ending, or what messages call a feed.
        headers: shape and type by name.
        arrays: reads them.
        path: of the file; None in memory.
    """

    label: str
    headers: Mapping[str, Header]
    arrays: Callable[[], Arrays]
    path: Path | None = None


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write an .npz file whole, with arrays of any name: np.savez takes names as keywords, and has none for `file`.

    Raises:
        ValueError: an array holds objects of Python.
        OSError: as truehalf.files.written_whole.
    """
    with written_whole(path) as building, zipfile.ZipFile(building, "w") as file:
        for name, array in arrays.items():
            with file.open(f"{name}{_ENDING}", "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, np.asanyarray(array), allow_pickle=False)


def read_arrays(path: Path) -> Arrays:
    """Read the arrays in an .npz file.

    Raises:
        StageError: file-missing, or file-unreadable for a file that is no archive of arrays of numbers.
    """
    with _archive(path) as members:
        return {name: np.lib.format.read_array(stream, allow_pickle=False) for name, stream in members}


def read_headers(path: Path) -> dict[str, Header]:
    """Read the headers of the arrays in an .npz file by name, and no array.

    Raises:
        StageError: as `read_arrays`.
    """
    with _archive(path) as members:
        return {name: _header(name, stream) for name, stream in members}


@contextlib.contextmanager
def _archive(path: Path) -> Iterator[Iterator[tuple[str, Any]]]:
    """Name and stream of each array in an .npz file."""
    try:
        with zipfile.ZipFile(path) as file:
            names = file.namelist()
            yield ((name.removesuffix(_ENDING), file.open(name)) for name in names)
    except FileNotFoundError as error:
        raise StageError("file-missing", f"{path}: no such file; {EXPECTED}") from error
    except zipfile.BadZipFile as error:
        message = f"{path}: {EXPECTED}, got a broken file, or one that is none of them ({path.stat().st_size} bytes)"
        raise StageError("file-unreadable", message) from error
    except (OSError, ValueError, EOFError, RuntimeError, zlib.error) as error:  # RuntimeError: encrypted
        raise StageError("file-unreadable", f"{path}: expected arrays in .npz, but {error}") from error


def _header(name: str, stream: Any) -> Header:
    try:
        version = np.lib.format.read_magic(stream)
        reads = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = reads(stream)
    except ValueError as error:
        raise ValueError(f"{name!r} in it is no array") from error
    if dtype.hasobject:
        raise ValueError(f"{name!r} in it is pickled, and unpickling runs code; save it as an array of numbers")
    return Header(tuple(shape), dtype)


class NpzFiles:
    """.npz files: headers are read when one is opened, arrays when they are asked for, one file in memory at a time."""

    def __init__(self) -> None:
        self._memory: dict[Path, Arrays] = {}

    def opened(self, path: Path) -> ArrayFile:
        """Open a file.

        Raises:
            StageError: as `read_arrays`.
        """
        return ArrayFile(path.stem, read_headers(path), lambda: self._arrays(path), path)

    def _arrays(self, path: Path) -> Arrays:
        if path not in self._memory:
            self._memory.clear()  # before the next one is read
            self._memory[path] = read_arrays(path)
        return self._memory[path]


def open_arrays(source: Any, inputs: Mapping[str, ir.Value], problems: list[str]) -> list[ArrayFile]:
    """Open samples that come with an ONNX file: a path, arrays by input name, or a list of such mappings.

    Args:
        inputs: of the model, for the types of numbers in JSON.
        problems: gets a line for everything that cannot be read.
    """
    if isinstance(source, (str, Path)):
        return _from_path(Path(source), inputs, problems)
    if isinstance(source, Mapping):
        return [_in_memory("feed", _as_arrays(source))]
    if isinstance(source, Sequence) and all(isinstance(feed, Mapping) for feed in source):
        return [_in_memory(f"feed[{i}]", _as_arrays(feed)) for i, feed in enumerate(source)]
    problems.append(coded("wrong-type", f"{EXPECTED}, got {type(source).__name__}"))
    return []


def _in_memory(label: str, arrays: Arrays) -> ArrayFile:
    return ArrayFile(label, {name: Header(array.shape, array.dtype) for name, array in arrays.items()}, lambda: arrays)


def _as_arrays(feed: Mapping[str, Any]) -> Arrays:
    arrays: Arrays = {}
    for name, array in feed.items():
        try:
            detached = array.detach() if hasattr(array, "detach") else array  # torch's, of a graph that has gradients
            arrays[str(name)] = np.asarray(detached)
        except (ValueError, TypeError, RuntimeError) as error:
            raise StageError("wrong-type", f"input {name!r}: expected an array, {first_line(error)}") from error
    return arrays


def _from_path(path: Path, inputs: Mapping[str, ir.Value], problems: list[str]) -> list[ArrayFile]:
    if path.suffix == ".json" and path.is_file():
        return _from_json(path, inputs, problems)
    files = [path]
    if path.is_dir() and not (files := sorted(file for file in path.glob("*.npz") if file.is_file())):
        problems.append(coded("file-missing", f"{path}: expected a folder of .npz files, there is none in it"))
    npz, opened = NpzFiles(), []
    for file in files:
        try:
            opened.append(npz.opened(file))
        except StageError as error:
            problems.append(str(error))
    return opened


# --- Polygraphy's JSON: an object names its class, an array is an .npy file within a string ---------------------------

_CLASS = "polygraphy_class"


def _from_json(path: Path, inputs: Mapping[str, ir.Value], problems: list[str]) -> list[ArrayFile]:
    try:
        content = read_json(path, expected="JSON")
    except StageError as error:
        problems.append(str(error))
        return []
    feeds = [content] if isinstance(content, dict) and _CLASS not in content else content
    if not isinstance(feeds, list) or not all(isinstance(feed, dict) and _CLASS not in feed for feed in feeds):
        got = f"an object of class {content[_CLASS]}" if isinstance(content, dict) else "something else"
        problems.append(coded("wrong-file", f"{path}: expected a list of feeds, objects of arrays by name, got {got}"))
        return []
    files = []
    for i, feed in enumerate(feeds):
        label, arrays = f"{path.stem}[{i}]", {}
        for name, encoded in feed.items():
            try:
                arrays[name] = _decoded(encoded, inputs.get(name))
            except (ValueError, OverflowError, TypeError, EOFError) as error:
                problems.append(coded("file-unreadable", f"{label}: {name!r} cannot be read as an array: {error}"))
        files.append(_in_memory(label, arrays))
    return [] if problems else files


def _decoded(item: Any, value: ir.Value | None) -> np.ndarray:
    """Read an array of Polygraphy's, or numbers in nested lists, which take the type of their input if that keeps their
    kind: 1.5 is no integer, and 1 no truth value.
    """
    if isinstance(item, dict):
        match item.get(_CLASS):
            case "ndarray":
                npy = base64.b64decode(item["array"], validate=True)
                array: np.ndarray = np.lib.format.read_array(io.BytesIO(npy), allow_pickle=False)
                return array
            case "LazyArray" | "LazyNumpyArray":
                return _decoded(item.get("values"), value)
            case other:
                raise ValueError(f"expected an array of numpy, got an object of class {other}; save it as one")
    array = np.array(item)
    if value is None or value.dtype is None or value.dtype.name == "STRING":
        return array
    wanted = value.dtype.numpy()
    changes_kind = array.dtype.kind != wanted.kind and (wanted.kind in "iub" or array.dtype.kind not in "iu")
    return array if changes_kind and array.size else np.array(item, wanted)
