"""Samples that come with an ONNX file: images, .npz files, Polygraphy's JSON, arrays in memory.

How an array becomes samples:

    axis 0 of all inputs counts samples   each row is a sample, of one file or feed; of several, each that has more than
                                          one row is a sample as it stands; one image, without that axis, is a sample
    an array of its input's rank          else: one sample as it stands (Sample.whole), scalars and empty ones included
    with one more leading axis            a stack, a sample for each entry; beside it arrays of one sample serve a stack
                                          of one

Axis 0 counts samples where all inputs have it free under one name, or fixed to one number (`samples_on_axis_0`).
Nothing is cast: an array of another type is an error. All problems are reported together, before an array is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from truehalf.codes import coded
from truehalf.data.arrays import ArrayFile, open_arrays
from truehalf.data.fitting import fitted
from truehalf.data.images import expected_files, is_image, open_image
from truehalf.data.model_images import example_size, inputs_of_images, shown_in
from truehalf.data.preprocessing import declared_by, preprocessing_of
from truehalf.data.samples import Sample, Samples, unreadable, without
from truehalf.data.sources import image_files, images_under
from truehalf.errors import StageError, refuse
from truehalf.io_spec.spec import InputSpec, IoSpec, fits
from truehalf.ir.facts import fed_inputs, fixed_batch, samples_on_axis_0
from truehalf.ir.inlining import weights_taken_out
from truehalf.ir.proto.one_image import IMAGE
from truehalf.json_values import JsonObject

if TYPE_CHECKING:
    from truehalf.data.preprocessing import Preprocessing

_PROBLEMS_SHOWN = 20
_AXES_OF_IMAGES = 4


def model_samples(
    source: Any,
    model: ir.Model,
    entry: InputSpec | None = None,
    preprocessing: JsonObject | Path | str | None = None,
    skip_corrupt: bool = False,
) -> Samples:
    """Samples of a model, whatever holds them.

    Args:
        source: a folder of images, one image, an .npz file, a folder of them, Polygraphy's JSON, arrays by input name,
            or an iterable of such mappings; what this function has returned is passed on.
        model: the model that they go into.
        entry: of its input of images in the I/O spec: the preprocessing, unless `preprocessing` says otherwise.
        preprocessing: of images (truehalf.data.preprocessing): a mapping, or a YAML or JSON file.
        skip_corrupt: leave out images that cannot be read instead of stopping.

    Raises:
        StageError: a source that is none of these or does not fit the model; options of images beside arrays.
    """
    if isinstance(source, Samples):
        return source
    if isinstance(source, (str, Path)) and _holds_images(Path(source)):
        declared = None if entry is None else declared_by(entry)
        applied = declared
        if preprocessing is not None:
            applied = preprocessing_of(preprocessing, declared or shown_in(model))
        return _images(Path(source), model, applied, skip_corrupt)
    given = {"preprocessing": preprocessing is not None, "skip_corrupt": skip_corrupt}
    options = [name for name, is_given in given.items() if is_given]
    if options and _are_arrays(source):
        message = f"{' and '.join(options)}: expected with images only; these samples are arrays already"
        raise StageError("in-conflict", message)
    if not isinstance(source, (str, Path, Mapping, Sequence)) and hasattr(source, "__iter__"):
        source = list(source)
    return _arrays(source, model)


def _holds_images(source: Path) -> bool:
    if not source.is_dir():
        return is_image(source)
    arrays, images = any(source.glob("*.npz")), bool(images_under(source))
    if arrays and images:
        message = f"samples {source}: expected .npz files or images, got both; move one kind away"
        raise StageError("in-conflict", message)
    if not arrays and not images:
        raise StageError("file-missing", f"samples {source}: expected .npz files or images, found neither")
    return images


def _are_arrays(source: Any) -> bool:
    """True of arrays, and of files that hold some; others are reported where they are opened."""
    if not isinstance(source, (str, Path)):
        return True
    source = Path(source)
    return source.is_dir() or (source.is_file() and source.suffix in (".npz", ".json"))


# --- images -----------------------------------------------------------------------------------------------------------


def _images(source: Path, model: ir.Model, preprocessing: Preprocessing | None, skip_corrupt: bool) -> Samples:
    if preprocessing is None:
        raise StageError(
            "needs-value",
            f"samples {source}: images need a preprocessing, and no I/O spec declares one; give --size "
            f"{example_size(model)}, and --range, --mean, --std, --layout, --resize or --channels where they differ "
            "from the defaults (in Python, preprocessing={...})",
        )
    inputs = inputs_of_images(model, preprocessing)
    folder, paths = (source, images_under(source)) if source.is_dir() else (source.parent, [source])
    if not paths:
        raise StageError("file-missing", f"{folder} holds no image; expected {expected_files()}")
    samples = fitted(image_files(paths, folder), IoSpec(inputs))
    problems = unreadable(len(paths), lambda position: open_image(paths[position]))
    if len(problems) == len(paths) or not skip_corrupt:
        remedy = "" if skip_corrupt else " (verify.skip_corrupt=true leaves them out)"
        what = f"{len(problems)} of {len(paths)} images cannot be read{remedy}"
        refuse("file-unreadable", what, list(problems.values()), _PROBLEMS_SHOWN)
    return without(samples, problems)


# --- arrays -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Cut:
    """Division of the arrays of a file into samples.

    Attributes:
        names: of the samples.
        rows: True if axis 0 of each array counts them.
        stacked: names of arrays that hold one entry for each.
    """

    names: list[str]
    rows: bool
    stacked: frozenset[str] = frozenset()


def _arrays(source: Any, model: ir.Model) -> Samples:
    problems: list[str] = []
    checker = _Checker(model)
    files = open_arrays(source, checker.inputs, problems)
    cuts = [checker.cut(file, problems) for file in files]
    is_whole = not all(cut.rows for cut in cuts)
    if len(files) > 1 and not checker.fixes_batch:
        is_whole |= any(len(cut.names) > 1 for cut in cuts)
    if is_whole:  # of several files of several rows, each is one that was put together so
        cuts = [
            replace(cut, names=[file.label] if cut.rows else cut.names) for file, cut in zip(files, cuts, strict=True)
        ]
    names = [name for cut in cuts for name in cut.names]
    if not problems and not names:
        problems.append(coded("too-few-samples", "there is no sample in it"))
    of = f" {source}" if isinstance(source, (str, Path)) else ""
    refuse("wrong-feeds", f"samples{of} do not fit the model", problems, _PROBLEMS_SHOWN)
    places = [(file, cut, row) for file, cut in zip(files, cuts, strict=True) for row in range(len(cut.names))]

    def load(position: int) -> Sample:
        file, cut, row = places[position]
        arrays = {name: checker.with_axis(name, array, cut) for name, array in file.arrays().items()}
        is_taken = cut.stacked if is_whole else arrays.keys()
        part = {name: array[row, ...] if name in is_taken else array for name, array in arrays.items()}
        return Sample(names[position], part, whole=is_whole)

    paths = [file.path for file, _, _ in places if file.path is not None]
    if is_whole or checker.fixes_batch:
        return Samples(names, load, paths, whole=is_whole)
    ends = list(accumulate(len(cut.names) for cut in cuts))
    rows = [range(end - len(cut.names), end) for end, cut in zip(ends, cuts, strict=True)]
    return Samples(names, load, paths, feeds=[(file.label, each) for file, each in zip(files, rows, strict=True)])


class _Checker:
    """Holds arrays against the inputs of a model.

    Attributes:
        inputs: by name.
        fixes_batch: True if the model fixes the number of samples.
    """

    def __init__(self, model: ir.Model) -> None:
        self.inputs = {str(value.name): value for value in model.graph.inputs}
        self._needed = [str(value.name) for value in fed_inputs(model)]
        self._weights = weights_taken_out(model)
        self._image = model.meta.get(IMAGE)
        self._counts_samples = samples_on_axis_0(model)
        self.fixes_batch = fixed_batch(model) is not None

    def with_axis(self, name: str, array: np.ndarray, cut: _Cut) -> np.ndarray:
        """An array with the axis of images that the input of one image has been given."""
        if name != self._image or array.ndim > _AXES_OF_IMAGES:
            return array
        if array.ndim < _AXES_OF_IMAGES:
            return array[np.newaxis]
        return array[:, np.newaxis] if name in cut.stacked else array

    def _shape(self, name: str, shape: tuple[int, ...], rows: bool) -> tuple[int, ...]:
        """Shape of an array, as `with_axis` gives it."""
        if name != self._image or len(shape) > _AXES_OF_IMAGES:
            return shape
        if len(shape) < _AXES_OF_IMAGES:
            return (1, *shape)
        return shape if rows or shape[0] == 1 else (shape[0], 1, *shape[1:])

    def cut(self, file: ArrayFile, problems: list[str]) -> _Cut:
        """How a file becomes samples; problems get a line for everything that does not fit."""
        headers = file.headers
        rows = self._rows(file)
        counts: dict[str, int] = {}
        stacked: set[str] = set()
        wrong: list[str] = []
        for name, header in headers.items():
            if name in self._weights and name not in self.inputs:
                remedy = "leave it out, or set precision.weights_as_inputs=true"
                message = f"{name!r} is listed as an input and is a weight of the model: {remedy}"
                wrong.append(coded("in-conflict", message))
            elif name not in self.inputs:
                known = ", ".join(f"{each!r}" for each in self.inputs) or "none"
                wrong.append(coded("wrong-name", f"{name!r} is no input of the model; it has {known}"))
            else:
                value, shape = self.inputs[name], self._shape(name, header.shape, rows is not None)
                counts[name] = 1
                if value.shape is not None and len(shape) == len(value.shape) + 1:
                    stacked.add(name)
                    counts[name] = shape[0]
                if problem := _misfit(value, shape, header.dtype, name in stacked, rows is not None):
                    wrong.append(f"{name!r}: {problem}")
        missing = [name for name in self._needed if name not in headers]
        wrong += [
            coded("missing-key", f"input {name!r} is missing; expected {_wanted(self.inputs[name])}")
            for name in missing
        ]
        if not wrong and len(set(counts.values())) > 1:
            wrong.append(coded("wrong-shape", f"expected as many samples for every input, got {counts}"))
        problems += [f"{file.label}: {problem}" for problem in wrong]
        count = 0 if wrong else rows if rows is not None else next(iter(counts.values()), 1)
        several = count > 1 or stacked
        names = [f"{file.label}[{i}]" if several else file.label for i in range(count)]
        return _Cut(names, rows is not None, frozenset(stacked))

    def _rows(self, file: ArrayFile) -> int | None:
        """Number of rows, each of them a sample; None where axis 0 counts none."""
        if not self._counts_samples or set(file.headers) != set(self._needed):
            return None
        lengths = set()
        for name, header in file.headers.items():
            shape, value = self._shape(name, header.shape, True), self.inputs[name]
            if value.shape is None or len(shape) != len(value.shape):
                return None
            lengths.add(shape[0])
        return lengths.pop() if len(lengths) == 1 else None


def _misfit(value: ir.Value, shape: Sequence[int], dtype: np.dtype, is_stack: bool, is_rows: bool) -> str:
    """Why an array is not what an input takes; "" where it is."""
    wanted, got = _wanted(value), f"{_type_name(dtype)} {list(shape)}"
    if not isinstance(value.type, (ir.TensorType, type(None))):
        message = f"the input is {wanted}, but samples are arrays; such a model can be converted without them"
        return coded("not-supported", message)
    if dtype.hasobject and value.dtype != ir.DataType.STRING:
        return coded("wrong-dtype", f"expected {wanted}, got an array of Python objects")
    sides, lengths = list(value.shape or ()), list(shape[1:] if is_stack else shape)
    if is_rows:
        sides, lengths = sides[1:], lengths[1:]
    if value.shape is not None and not fits(sides, lengths):
        return coded("wrong-shape", f"expected {wanted}, or that with one more leading axis of samples, got {got}")
    if value.dtype == ir.DataType.BFLOAT16:
        message = "the input is bfloat16, which ONNX Runtime cannot be fed; export the model with float32 inputs"
        return coded("not-supported", message)
    is_string = value.dtype == ir.DataType.STRING and dtype.kind in "OUST"
    if (
        value.dtype is not None
        and not is_string
        and (value.dtype == ir.DataType.STRING or dtype != value.dtype.numpy())
    ):
        return coded("wrong-dtype", f"expected {wanted}, got {got}; convert the array")
    return ""


def _type_name(dtype: np.dtype) -> str:
    return dtype.name if dtype.isnative else f"{dtype.name} with swapped bytes ({dtype.str})"


def _wanted(value: ir.Value) -> str:
    """Type and shape of an input, such as "float32 [N, 3, 640, 640]"."""
    if not isinstance(value.type, (ir.TensorType, type(None))):
        return str(value.type)
    dtype = "an array of any type"
    if value.dtype is not None:
        dtype = "string" if value.dtype == ir.DataType.STRING else value.dtype.numpy().name
    if value.shape is None:
        return f"{dtype} of any shape"
    return f"{dtype} [{', '.join(str(dim) if isinstance(dim, int) else str(dim.value or '?') for dim in value.shape)}]"
