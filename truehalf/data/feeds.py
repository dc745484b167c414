"""Samples that people bring with an ONNX file: .npz, a folder of .npz, Polygraphy's JSON, or arrays in memory.

    an array of its input's rank         one feed as it stands, scalars and empty arrays included
    with an axis less, of one image      the same, where the model's file takes one (truehalf.ir.proto.one_image);
                                         of its input's rank it is a stack of several, beside other stacks
    with one more leading axis           a stack of samples, one feed each
    of the input's rank, with more or    rows in feeds of the number of rows that the model fixes, the last row again
    fewer rows than all inputs fix       where the last feed has too few

Within one file or dict every input has as many samples as the others. Nothing is cast: an array of another type is an
error. All problems of a source are collected and reported together, before the first array is used.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from truehalf.codes import coded
from truehalf.data.arrays import Source, sources_of
from truehalf.errors import refuse
from truehalf.io_spec.spec import fits
from truehalf.ir.inlining import weights_taken_out
from truehalf.ir.proto.one_image import IMAGE

_PROBLEMS_SHOWN = 20
_OF_IMAGES = 4  # axes of images, the number of them first


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
        places = range(len(self.names)) if self._positions is None else self._positions
        chosen._positions = [places[i] for i in sorted(positions)]
        chosen.names = [self.names[i] for i in sorted(positions)]
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
        return Feeds([replace(part, samples=count[0], rows=1)])

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
    problems: list[str] = []
    inputs = {str(value.name): value for value in model.graph.inputs}
    batch, weights = _fixed_rows(inputs), weights_taken_out(model)
    parts = [
        _checked(_Part(opened, image=model.meta.get(IMAGE)), inputs, problems, batch, weights)
        for opened in sources_of(source, inputs, problems)
    ]
    feeds = Feeds(parts)
    if not problems and not feeds.names:
        problems.append(coded("too-few-samples", "there is no sample in it"))
    of = f" {source}" if isinstance(source, (str, Path)) else ""
    refuse("wrong-feeds", f"{what}{of} does not fit the model", problems, _PROBLEMS_SHOWN)
    return feeds


def refuse_nan(feed: Mapping[str, np.ndarray], called: Sequence[str]) -> None:
    """StageError (not-finite) where an input of a feed that is to be compared holds NaN.

    Args:
        called: names of its samples: one, or one for each row.
    """
    problems = [
        f"{name!r} of {_first_bad(array, called)}: {int(np.isnan(array).sum())} of {array.size} values"
        for name, array in feed.items()
        if array.dtype.kind == "f" and np.isnan(array).any()
    ]
    refuse("not-finite", "NaN in the inputs, where nothing can be compared", problems)


def _first_bad(array: np.ndarray, called: Sequence[str]) -> str:
    row = int(np.argwhere(np.isnan(array))[0][0]) if len(called) > 1 else 0
    return called[row]


# --- against the model ------------------------------------------------------------------------------------------------


@dataclass
class _Part:
    """A source that was checked: how many feeds it holds, and which arrays are stacks, or whether each row is one;
    `image`: the input of one image.
    """

    source: Source
    samples: int = 0
    image: str | None = None
    stacked: set[str] = field(default_factory=set)
    rows: int = 0  # of each feed, where arrays are cut into rows; else 0

    def of(self, name: str, array: np.ndarray, index: int) -> np.ndarray:
        """The part of an array that belongs to a feed."""
        if not self.rows:
            array = array[index, ...] if name in self.stacked else array
            return array[np.newaxis] if name == self.image and array.ndim < _OF_IMAGES else array
        part = array[index * self.rows : (index + 1) * self.rows]
        return np.concatenate([part, np.repeat(part[-1:], self.rows - len(part), axis=0)])

    def names(self) -> list[str]:
        several = self.samples > 1 or self.stacked
        return [f"{self.source.label}[{i}]" if several else self.source.label for i in range(self.samples)]


def _fixed_rows(inputs: Mapping[str, ir.Value]) -> int:
    """The number of rows that all inputs are fixed to on axis 0; 0 where they are not."""
    axes = {value.shape[0] if value.shape else None for value in inputs.values() if not value.is_initializer()}
    axis = axes.pop() if len(axes) == 1 else None
    return axis if isinstance(axis, int) else 0


def _rows_to_cut(source: Source, inputs: Mapping[str, ir.Value], batch: int) -> int:
    """The number of rows of a source whose arrays are inputs but for having more or fewer of them than the model fixes;
    0 of others.
    """
    if not batch:
        return 0
    known = {name: header.shape for name, header in source.headers.items() if name in inputs}
    rows = {shape[0] if len(shape) == len(inputs[name].shape or ()) else 0 for name, shape in known.items()}
    count = rows.pop() if len(rows) == 1 else 0
    return 0 if count == batch else count


def _checked(
    part: _Part, inputs: Mapping[str, ir.Value], problems: list[str], batch: int, weights: Sequence[str]
) -> _Part:
    source, counts = part.source, dict[str, int]()
    total = _rows_to_cut(source, inputs, batch)
    part.rows = batch if total else 0
    wrong: list[str] = []
    for name, header in source.headers.items():
        shape, dtype = (batch, *header.shape[1:]) if total else header.shape, header.dtype
        if name == part.image and len(shape) < _OF_IMAGES:
            shape = (1, *shape)
        elif name == part.image and len(shape) == _OF_IMAGES and shape[0] != 1 and not total:
            shape = (shape[0], 1, *shape[1:])
        if name in weights and name not in inputs:
            remedy = "leave it out, or set precision.weights_as_inputs=true"
            wrong.append(coded("in-conflict", f"{name!r} is listed as an input and is a weight of the model: {remedy}"))
        elif name not in inputs:
            known = ", ".join(f"{each!r}" for each in inputs) or "none"
            wrong.append(coded("wrong-name", f"{name!r} is no input of the model; it has {known}"))
        elif text := _misfit(inputs[name], shape, dtype):
            wrong.append(f"{name!r}: {text}")
        else:
            counts[name] = -(-total // batch) if total else 1
            if _is_stack(inputs[name], shape):
                part.stacked.add(name)
                counts[name] = shape[0]
    for name, value in inputs.items():
        if name not in source.headers and not value.is_initializer():
            wrong.append(coded("missing-key", f"input {name!r} is missing; expected {_wanted(value)}"))
    if len(set(counts.values())) > 1:
        wrong.append(coded("wrong-shape", f"expected as many samples for every input, got {counts}"))
    problems += [f"{source.label}: {text}" for text in wrong]
    part.samples = 0 if wrong else next(iter(counts.values()), 1)
    return part


def _misfit(value: ir.Value, shape: Sequence[int], dtype: np.dtype) -> str | None:
    wanted, got = _wanted(value), f"{_type_name(dtype)} {list(shape)}"
    if not isinstance(value.type, (ir.TensorType, type(None))):
        message = f"the input is {wanted}, but feeds hold arrays only; such a model can be converted without them"
        return coded("not-supported", message)
    if dtype.hasobject and value.dtype != ir.DataType.STRING:
        return coded("wrong-dtype", f"expected {wanted}, got an array of Python objects")
    rows = list(shape[1:] if _is_stack(value, shape) else shape)
    if value.shape is not None and not fits(list(value.shape), rows):
        return coded("wrong-shape", f"expected {wanted}, or that with one more leading axis of samples, got {got}")
    if value.dtype == ir.DataType.BFLOAT16:
        message = "the input is bfloat16, which ONNX Runtime cannot be fed; export the model with float32 inputs"
        return coded("not-supported", message)
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
