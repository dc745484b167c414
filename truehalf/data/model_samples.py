"""Samples that come with an ONNX file: images, .npz files, Polygraphy's JSON, arrays in memory.

How an array becomes samples:

    axis 0 of all inputs counts samples   each row is a sample, of one file or feed; of several, each that has more than
                                          one row is a sample as it stands; one image, without that axis, is a sample
    else                                  one sample as it stands (Samples.whole), scalars and empty arrays included
    all arrays have one more axis         a stack: each entry of axis 0 is such a sample

Axis 0 counts samples where all inputs have it free under one name, or fixed to one number (`samples_on_axis_0`).
Nothing is cast: an array of another type is an error. All problems are reported together, before an array is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from truehalf.codes import coded
from truehalf.data.arrays import ArrayFile, open_arrays, rows_of
from truehalf.data.fitting import fitted, misfits
from truehalf.data.images import images_under, is_image
from truehalf.data.model_inputs import example_size, inputs_of_images, shown_in
from truehalf.data.preprocessing import declared_by, preprocessing_of
from truehalf.data.samples import Sample, Samples, readable
from truehalf.data.sources import array_files, image_files
from truehalf.errors import StageError, refuse, some_of
from truehalf.io_spec.inputs import input_spec
from truehalf.io_spec.spec import InputSpec, IoSpec
from truehalf.ir.facts import fed_inputs, fixed_batch, samples_on_axis_0
from truehalf.ir.proto.one_image import IMAGE
from truehalf.json_values import JsonObject

if TYPE_CHECKING:
    from truehalf.data.preprocessing import Preprocessing

_PROBLEMS_SHOWN = 20
_AXES_OF_ONE_IMAGE = 3


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
        applied = None if entry is None else declared_by(entry)
        if preprocessing is not None:
            applied = preprocessing_of(preprocessing, applied or shown_in(model))
        return _images(Path(source), model, applied, skip_corrupt)
    files = open_arrays(source)
    given = {"preprocessing": preprocessing is not None, "skip_corrupt": skip_corrupt}
    if options := [name for name, is_given in given.items() if is_given]:
        message = f"{' and '.join(options)}: expected with images only; these samples are arrays already"
        raise StageError("in-conflict", message)
    return _arrays([_with_axis_of_images(file, model) for file in files], model)


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


def _images(source: Path, model: ir.Model, preprocessing: Preprocessing | None, skip_corrupt: bool) -> Samples:
    if preprocessing is None:
        raise StageError(
            "needs-value",
            f"samples {source}: images need a preprocessing, and no I/O spec declares one; give --size "
            f"{example_size(model)}, and --range, --mean, --std, --layout, --resize or --channels where they differ "
            "from the defaults (in Python, preprocessing={...})",
        )
    folder, paths = (source, images_under(source)) if source.is_dir() else (source.parent, [source])
    samples = fitted(image_files(paths, folder), IoSpec(inputs_of_images(model, preprocessing)))
    return readable(samples, skip_corrupt)


def _arrays(files: Sequence[ArrayFile], model: ir.Model) -> Samples:
    counts = [_counts(file, model) for file in files]
    rows, stacks = [row for row, _ in counts], [stack for _, stack in counts]
    is_free = fixed_batch(model) is None
    is_whole = None in rows or (is_free and len(files) > 1 and any(count != 1 for count in rows))
    inputs, needed = list(map(input_spec, model.graph.inputs)), [str(value.name) for value in fed_inputs(model)]
    named = {name for file in files for name in file.headers} - {entry.name for entry in inputs}
    if weights := sorted(named & model.graph.initializers.keys()):
        message = f"samples hold weights of the model: {some_of(map(repr, weights))}; leave them out, or set "
        raise StageError("in-conflict", f"{message}precision.weights_as_inputs=true")
    problems = []
    for file, (row, stack) in zip(files, counts, strict=True):
        one = {name: array[0] for name, array in file.headers.items()} if stack else file.headers
        found = misfits(one, inputs, needed, skipped=0 if row is None else 1)
        problems += [f"{file.label}: {problem}" for problem in found]
    source = array_files(files, stacks if is_whole else rows)
    if not problems and not source.names:
        problems.append(coded("too-few-samples", "there is no sample in it"))
    refuse("wrong-feeds", "samples do not fit the model", problems, _PROBLEMS_SHOWN)
    ends = pairwise([0, *accumulate(count or 0 for count in rows)])
    feeds = [(file.label, range(*both)) for file, both in zip(files, ends, strict=True)] if is_free else []

    def load(position: int) -> Sample:
        return Sample(source.names[position], source.load(position))

    return replace(source, load=load, whole=is_whole, feeds=() if is_whole else feeds)


def _with_axis_of_images(file: ArrayFile, model: ir.Model) -> ArrayFile:
    """Give an image of three axes one of images, as its input was given (truehalf.ir.proto.one_image)."""
    image = model.meta.get(IMAGE)

    def changed(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        is_one = {name: name == image and array.ndim == _AXES_OF_ONE_IMAGE for name, array in arrays.items()}
        return {name: array[np.newaxis] if is_one[name] else array for name, array in arrays.items()}

    return replace(file, headers=changed(file.headers), arrays=lambda: changed(file.arrays()))


def _counts(file: ArrayFile, model: ir.Model) -> tuple[int | None, int | None]:
    """Number of samples on axis 0 of all arrays in a file, as rows and as a stack; None where it is none."""
    ranks = {str(value.name): len(value.shape) for value in fed_inputs(model) if value.shape is not None}
    if ranks.keys() != file.headers.keys():
        return None, None
    more = {array.ndim - ranks[name] for name, array in file.headers.items()}  # axes before those of the input
    count = rows_of(file.headers)
    return count if more == {0} and samples_on_axis_0(model) else None, count if more == {1} else None
