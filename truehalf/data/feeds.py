"""Samples that people bring with an ONNX file: .npz, a folder of .npz, Polygraphy's JSON, or arrays in memory.

    an array of its input's own rank     one feed as it stands, scalars and empty arrays included
    with one more leading axis           a stack of samples, one feed each

Within one file or dict every input has as many samples as the others. Nothing is cast: an array of another type is a
fault. All faults of a source are collected and reported together, before the first array is used.
"""

from __future__ import annotations

import base64
import copy
import io
import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from truehalf.codes import coded
from truehalf.data.arrays import Header, read_arrays, read_headers
from truehalf.errors import StageError

_FAULTS_SHOWN = 20
_EXPECTED = (
    "expected an .npz file, a folder of .npz files, a JSON file of Polygraphy, or a dict of arrays by input name"
)


class Feeds:
    """Complete inputs of a model, one run each; may be iterated over again and again, one file in memory at a time.

    Attributes:
        names: one for each feed: the file's name without its ending, with [index] where the file holds several.
    """

    def __init__(self, parts: Sequence[_Part]) -> None:
        self._parts = [part for part in parts if part.samples]
        self.names = [name for part in self._parts for name in part.names()]
        self._positions: list[int] | None = None

    def only(self, positions: Sequence[int]) -> Feeds:
        """Those at the given positions of `names`, in the order in which they lie."""
        chosen = copy.copy(self)
        chosen._positions = sorted(positions)
        chosen.names = [self.names[i] for i in chosen._positions]
        return chosen

    def by_rows(self, model: ir.Model) -> Feeds:
        """A feed of several rows as a feed for each, where axis 0 of all inputs is one that varies; else itself."""
        part = self._parts[0]
        inputs = [value for value in model.graph.inputs if str(value.name) in part.source.headers]
        axes = {value.shape[0] if value.shape is not None and len(value.shape) else None for value in inputs}
        rows = {header.shape[:1] for header in part.source.headers.values()}
        axis, count = next(iter(axes), None), next(iter(rows), ())
        varies = isinstance(axis, ir.SymbolicDim) and (axis.value is not None or len(inputs) == 1)
        if len(self) > 1 or part.stacked or len(axes) > 1 or len(rows) > 1 or not varies or count < (2,):
            return self
        return Feeds([replace(part, samples=count[0], rows=True)])

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        if self._positions is None:
            yield from self._all()
            return
        wanted = set(self._positions)
        yield from (feed for position, feed in enumerate(self._all()) if position in wanted)

    def _all(self) -> Iterator[dict[str, np.ndarray]]:
        for part in self._parts:
            arrays = part.source.load()
            for index in range(part.samples):
                yield {name: part.of(name, array, index) for name, array in arrays.items()}


def load_feeds(source: Any, model: ir.Model, what: str = "calibration") -> Feeds:
    """Feeds for a model, checked against its inputs.

    Args:
        source: path of an .npz file, of a folder of .npz files (in the order of their names), or of a JSON file that
            Polygraphy's save_json wrote from a list of feeds; or a dict of arrays by input name, or a list of dicts.
        model: inputs that have a default (an initializer of the same name) may be left out.
        what: what messages call the source.

    Raises:
        StageError: listing everything that is wrong: names that the model does not have, inputs without an array,
            ranks, shapes, types, unequal numbers of samples, a file that cannot be read, a folder without files.
    """
    faults: list[str] = []
    inputs = {str(value.name): value for value in model.graph.inputs}
    parts = [_checked(opened, inputs, faults) for opened in _sources(source, inputs, faults)]
    feeds = Feeds(parts)
    if not faults and not feeds.names:
        faults.append(coded("too-few-samples", "there is no sample in it"))
    if faults:
        more = len(faults) - _FAULTS_SHOWN
        lines = faults[:_FAULTS_SHOWN] + ([f"and {more} more"] if more > 0 else [])
        of = f" {source}" if isinstance(source, (str, Path)) else ""
        raise StageError(
            "wrong-feeds", f"{what}{of} does not fit the model:\n" + "\n".join(f"  - {line}" for line in lines)
        )
    return feeds


# --- against the model ------------------------------------------------------------------------------------------------


@dataclass
class _Part:
    """A source that was checked: how many feeds it holds, and which arrays are stacks, or whether each row is one."""

    source: _Source
    samples: int = 0
    stacked: set[str] = field(default_factory=set)
    rows: bool = False

    def of(self, name: str, array: np.ndarray, index: int) -> np.ndarray:
        """The part of an array that belongs to a feed."""
        return array[index : index + 1] if self.rows else array[index, ...] if name in self.stacked else array

    def names(self) -> list[str]:
        several = self.samples > 1 or self.stacked
        return [f"{self.source.label}[{i}]" if several else self.source.label for i in range(self.samples)]


def _checked(source: _Source, inputs: Mapping[str, ir.Value], faults: list[str]) -> _Part:
    part, counts = _Part(source), {}
    wrong: list[str] = []
    for name, header in source.headers.items():
        shape, dtype = header.shape, header.dtype
        if name not in inputs:
            known = ", ".join(f"{each!r}" for each in inputs) or "none"
            wrong.append(coded("wrong-name", f"{name!r} is no input of the model; it has {known}"))
        elif text := _misfit(inputs[name], shape, dtype):
            wrong.append(f"{name!r}: {text}")
        else:
            counts[name] = 1
            if _is_stack(inputs[name], shape):
                part.stacked.add(name)
                counts[name] = shape[0]
    for name, value in inputs.items():
        if name not in source.headers and not value.is_initializer():
            wrong.append(coded("missing-key", f"input {name!r} is missing; expected {_wanted(value)}"))
    if len(set(counts.values())) > 1:
        wrong.append(coded("wrong-shape", f"expected as many samples for every input, got {counts}"))
    faults += [f"{source.label}: {text}" for text in wrong]
    part.samples = 0 if wrong else next(iter(counts.values()), 1)
    return part


def _misfit(value: ir.Value, shape: Sequence[int], dtype: np.dtype) -> str | None:
    wanted, got = _wanted(value), f"{_type_name(dtype)} {list(shape)}"
    if not isinstance(value.type, (ir.TensorType, type(None))):
        return coded(
            "not-supported",
            f"the input is {wanted}, but feeds hold arrays only; such a model can be converted without them",
        )
    if dtype.hasobject and value.dtype != ir.DataType.STRING:
        return coded("wrong-dtype", f"expected {wanted}, got an array of Python objects")
    rows = list(shape[1:] if _is_stack(value, shape) else shape)
    if value.shape is not None:
        fits = len(rows) == len(value.shape) and all(
            not isinstance(dim, int) or dim == row for dim, row in zip(value.shape, rows, strict=True)
        )
        if not fits:
            return coded("wrong-shape", f"expected {wanted}, or that with one more leading axis of samples, got {got}")
    if not _is_type(dtype, value.dtype):
        return coded("wrong-dtype", f"expected {wanted}, got {got}; convert the array")
    return None


def _is_stack(value: ir.Value, shape: Sequence[int]) -> bool:
    return value.shape is not None and len(shape) == len(value.shape) + 1


def _is_type(dtype: np.dtype, wanted: ir.DataType | None) -> bool:
    if wanted is None:
        return True
    if wanted == ir.DataType.STRING:
        return dtype.kind in "OUST"
    return bool(dtype == wanted.numpy())


def _type_name(dtype: np.dtype) -> str:
    return dtype.name if dtype.isnative else f"{dtype.name} with swapped bytes ({dtype.str})"


def _wanted(value: ir.Value) -> str:
    if not isinstance(value.type, (ir.TensorType, type(None))):
        return str(value.type)
    dtype = "an array of any type"
    if value.dtype is not None:
        dtype = "string" if value.dtype == ir.DataType.STRING else value.dtype.numpy().name
    if value.shape is None:
        return f"{dtype} of any shape"
    return f"{dtype} [{', '.join(str(dim) if isinstance(dim, int) else str(dim.value or '?') for dim in value.shape)}]"


# --- where the arrays are ---------------------------------------------------------------------------------------------


class _Source:
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


class _NpzSource(_Source):
    """Arrays in an .npz file, read when they are asked for; their headers at once."""

    def __init__(self, path: Path) -> None:
        super().__init__(path.stem, {})
        self._path = path
        self.headers = read_headers(path)

    def load(self) -> dict[str, np.ndarray]:
        try:
            return read_arrays(self._path)
        except (OSError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
            raise StageError(
                "file-unreadable", f"{self._path}: expected arrays in .npz, got a broken file ({error})"
            ) from error


def _sources(source: Any, inputs: Mapping[str, ir.Value], faults: list[str]) -> list[_Source]:
    if isinstance(source, (str, Path)):
        return _from_path(Path(source), inputs, faults)
    if isinstance(source, Mapping):
        return [_Source("feed", _as_arrays(source))]
    if isinstance(source, Sequence) and all(isinstance(each, Mapping) for each in source):
        return [_Source(f"feed[{i}]", _as_arrays(each)) for i, each in enumerate(source)]
    faults.append(coded("wrong-type", f"{_EXPECTED}, got {type(source).__name__}"))
    return []


def _as_arrays(feed: Mapping[str, Any]) -> dict[str, np.ndarray]:
    return {str(name): np.asarray(array) for name, array in feed.items()}


def _from_path(path: Path, inputs: Mapping[str, ir.Value], faults: list[str]) -> list[_Source]:
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix == ".npz" and file.is_file())
        if not files:
            faults.append(coded("file-missing", f"{path}: expected a folder of .npz files, there is none in it"))
        return [opened for file in files if (opened := _from_npz(file, faults)) is not None]
    if not path.is_file():
        faults.append(coded("file-missing", f"{path}: no such file or folder; {_EXPECTED}"))
        return []
    if path.suffix == ".json":
        return _from_json(path, inputs, faults)
    return [opened for opened in [_from_npz(path, faults)] if opened is not None]


def _from_npz(path: Path, faults: list[str]) -> _Source | None:
    try:
        return _NpzSource(path)
    except zipfile.BadZipFile:
        said = f"{path}: {_EXPECTED}, got a file that is none of them ({path.stat().st_size} bytes)"
        faults.append(coded("file-unreadable", said))
    except (OSError, ValueError, EOFError, zlib.error, RuntimeError) as error:  # the last: encrypted, or packed unknown
        faults.append(coded("file-unreadable", f"{path}: expected arrays in .npz, but {error}"))
    return None


# --- Polygraphy's JSON ------------------------------------------------------------------------------------------------

# An object of one of its classes carries the class's name; an array is an .npy file (of old: also an .npz file, and
# in latin-1) within a string.
_CLASS = "polygraphy_class"
_OLD_CLASS = "__polygraphy_encoded_"


def _from_json(path: Path, inputs: Mapping[str, ir.Value], faults: list[str]) -> list[_Source]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        faults.append(coded("file-unreadable", f"{path}: expected JSON, got a file that is none ({error})"))
        return []
    feeds = [content] if isinstance(content, dict) and not _class_of(content) else content
    if not isinstance(feeds, list) or not all(isinstance(feed, dict) and not _class_of(feed) for feed in feeds):
        got = f"got an object of class {_class_of(content)}" if isinstance(content, dict) else "got something else"
        faults.append(coded("wrong-file", f"{path}: expected a list of feeds, each an object of arrays by name, {got}"))
        return []
    sources = []
    for i, feed in enumerate(feeds):
        label, arrays = f"{path.stem}[{i}]", {}
        for name, encoded in feed.items():
            try:
                arrays[name] = _decoded(encoded, inputs.get(name))
            except (ValueError, OverflowError, TypeError, EOFError, zipfile.BadZipFile) as error:
                faults.append(coded("file-unreadable", f"{label}: {name!r} cannot be read as an array: {error}"))
        sources.append(_Source(label, arrays))
    return [] if faults else sources


def _class_of(item: Mapping[str, Any]) -> str | None:
    old = [key.removeprefix(_OLD_CLASS) for key in item if key.startswith(_OLD_CLASS)]
    return str(item[_CLASS]) if _CLASS in item else next(iter(old), None)


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
    if value is None or value.dtype is None or value.dtype == ir.DataType.STRING:
        return array
    wanted = value.dtype.numpy()
    changes_kind = array.dtype.kind != wanted.kind and (wanted.kind in "iub" or array.dtype.kind not in "iu")
    return array if changes_kind and array.size else np.array(item, wanted)


def _npy(text: Any) -> np.ndarray:
    if not isinstance(text, str):
        raise ValueError(f"expected its bytes as text, got {type(text).__name__}")
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        data = text.encode("latin-1")
    loaded = np.load(io.BytesIO(data), allow_pickle=False)
    return loaded if isinstance(loaded, np.ndarray) else next(iter(loaded.values()))
