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
from typing import Any

import numpy as np
import onnx_ir as ir

from truehalf.codes import coded
from truehalf.config.schema import Layout
from truehalf.data.arrays import ArrayFile, array_files, open_arrays, rows_of
from truehalf.data.fitting import fitted, misfits
from truehalf.data.images import image_files, images_under, is_image
from truehalf.data.preprocessing import Preprocessing, declared_by, preprocessing_of
from truehalf.data.samples import Sample, Samples
from truehalf.errors import StageError, refuse, some_of
from truehalf.io_spec.inputs import PIXEL_MASK, channels_axis, input_spec, kind_beside_images
from truehalf.io_spec.spec import InputSpec, IoSpec, input_of
from truehalf.ir.facts import constant_of, fed_inputs, fixed_batch, is_op, reached, samples_on_axis_0
from truehalf.ir.ops import MOVES
from truehalf.ir.proto.one_image import IMAGE
from truehalf.json_values import JsonObject

_DTYPES = ("float32", "float16", "float64", "uint8")  # of images
_AXES = 4
_ANY_IMAGE = ("?",) * _AXES
_OF_BYTES = 50  # below 255, and deviations of pixels in 0..255 (ImageNet's are 57 to 59); far above those of 0..1
_PROBLEMS_SHOWN = 20
_AXES_OF_ONE_IMAGE = 3


def model_samples(
    source: Any,
    model: ir.Model,
    entry: InputSpec | None = None,
    preprocessing: JsonObject | Path | str | None = None,
) -> Samples:
    """Samples of a model, whatever holds them.

    Args:
        source: a folder of images, one image, an .npz file, a folder of them, Polygraphy's JSON, arrays by input name,
            or an iterable of such mappings; what this function has returned is passed on.
        model: the model that they go into.
        entry: of its input of images in the I/O spec: the preprocessing, unless `preprocessing` says otherwise.
        preprocessing: of images (truehalf.data.preprocessing): a mapping, or a YAML or JSON file.

    Raises:
        StageError: a source that is none of these or does not fit the model; options of images beside arrays.
    """
    if isinstance(source, Samples):
        return source
    if isinstance(source, (str, Path)) and _holds_images(Path(source)):
        applied = None if entry is None else declared_by(entry)
        if preprocessing is not None:
            applied = preprocessing_of(preprocessing, applied or shown_in(model))
        return _images(Path(source), model, applied)
    files = open_arrays(source)
    if preprocessing is not None:
        raise StageError("in-conflict", "preprocessing: expected with images only; these samples are arrays already")
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


def _images(source: Path, model: ir.Model, preprocessing: Preprocessing | None) -> Samples:
    if preprocessing is None:
        raise StageError(
            "needs-value",
            f"samples {source}: images need a preprocessing, and no I/O spec declares one; give --size "
            f"{example_size(model)}, and --range, --mean, --std, --layout, --resize or --channels where they differ "
            "from the defaults (in Python, preprocessing={...})",
        )
    folder, paths = (source, images_under(source)) if source.is_dir() else (source.parent, [source])
    return fitted(image_files(paths, folder), IoSpec(inputs_of_images(model, preprocessing)))


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


# --- inputs that images feed ------------------------------------------------------------------------------------------


def image_inputs(model: ir.Model) -> list[ir.Value]:
    """Inputs without a default, those of four axes first."""
    return sorted(fed_inputs(model), key=lambda value: value.shape is None or len(value.shape) != _AXES)


def inputs_of_images(model: ir.Model, preprocessing: Preprocessing) -> tuple[InputSpec, ...]:
    """Inputs of a model that images feed, with the preprocessing, whose size is that of the input where it has none.

    Raises:
        StageError: the model has other inputs than one of images, integers [N, 2] named as a size, and a mask; or the
            preprocessing does not fit it.
    """
    needed = [input_spec(value) for value in image_inputs(model)]
    kinds = {entry.name: kind for entry in needed if (kind := kind_beside_images(entry))}
    images = [entry for entry in needed if entry.name not in kinds]
    if len(images) != 1 or images[0].dtype not in _DTYPES or len(images[0].shape or _ANY_IMAGE) != len(_ANY_IMAGE):
        inputs = ", ".join(f"{entry.name!r} {entry.dtype} {list(entry.sides)}" for entry in needed) or "none"
        raise StageError(
            "not-supported",
            f"a folder of images feeds a model with one input of images, {_AXES} axes in {', '.join(_DTYPES)}, a size "
            f"(integers [N, 2]), and a {PIXEL_MASK} [N, height, width]; this one has {inputs}; give arrays (.npz)",
        )
    image = replace(images[0], shape=images[0].shape or _ANY_IMAGE, layout=preprocessing.layout)
    size = preprocessing.size or [side for side in image.height_width if isinstance(side, int)]
    if len(size) != 2:
        missing = f"size is missing, and input {image.name!r} does not fix it; give size: [height, width]"
        raise StageError("needs-value", f"preprocessing: {missing}")
    resolved = replace(preprocessing, size=size)
    made = resolved.of_pixels(np.zeros((*size, 3), np.float32), image.dtype)
    problems = list(misfits({image.name: made[np.newaxis]}, [image], []))
    refuse("wrong-preprocessing", f"layout {image.layout}: say its --size or --layout, or give arrays (.npz)", problems)
    is_plain = resolved.range == (0, 255) and not any(resolved.mean) and {*resolved.std} == {1}
    if image.dtype == "uint8" and not is_plain:
        message = f"preprocessing: input {image.name!r} is uint8; expected range [0, 255], no mean, no std"
        raise StageError("in-conflict", message)
    declared = input_of(images[0], "images", resolved.declared())
    return (declared, *(replace(entry, kind=kinds[entry.name]) for entry in needed if entry.name in kinds))


def shown_by(value: ir.Value) -> Preprocessing:
    """Layout and range as an input of images shows them, by its channels' axis, its type and the first arithmetic with
    constants: images of 0..255 are bytes, or what is divided by 255 or by deviations of such pixels, or has their means
    subtracted. Other keys are the defaults.
    """
    is_last = channels_axis(tuple(value.shape or ())) == 3
    is_of_bytes = value.dtype is not None and value.dtype.name == "UINT8"
    return Preprocessing(
        layout=Layout.nhwc if is_last else Layout.nchw, range=(0, 255) if is_of_bytes or _takes_bytes(value) else (0, 1)
    )


def shown_in(model: ir.Model) -> Preprocessing:
    """As `shown_by`, of the input that images feed; the defaults of a model without inputs."""
    return next(map(shown_by, image_inputs(model)), Preprocessing())


def example_size(model: ir.Model) -> str:
    """Height and width that the input of images fixes, as --size takes them; else an example."""
    for value in image_inputs(model)[:1]:
        sides = replace(input_spec(value), layout=shown_by(value).layout).height_width
        if len(sides) == 2 and all(isinstance(side, int) for side in sides):
            return "x".join(map(str, sides))
    return "640x640"


def _takes_bytes(value: ir.Value) -> bool:
    def moved(value: ir.Value) -> list[ir.Value]:
        return [result for node in value.consumers() if is_op(node, *MOVES, "Cast") for result in node.outputs]

    readers = ((node, pixels) for pixels in reached([value], moved) for node in pixels.consumers())
    return any(_scales_bytes(node, pixels, read) for node, pixels in readers for read in node.inputs)


def _scales_bytes(node: ir.Node, pixels: ir.Value, read: ir.Value | None) -> bool:
    """True if a node scales or shifts pixels of 0..255 by a constant."""
    number = constant_of(read)
    if number is None or not number.size or node.domain != "":
        return False
    match node.op_type:
        case "Div":
            return node.inputs[0] is pixels and bool(np.abs(number).min() > _OF_BYTES)
        case "Mul":
            return bool(0 < np.abs(number).max() * _OF_BYTES < 1)
        case "Sub":
            return node.inputs[0] is pixels and bool(np.abs(number).max() > 1)
    return False
