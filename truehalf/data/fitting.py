"""Samples of a source as inputs of a model: an image goes through the preprocessing that the I/O spec declares, arrays
go in as they are. Samples made for a model: images at the rim of the input range, and noise, which says nothing of real
ranges (docs/how-to/data.md has the figures).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from truehalf.codes import coded
from truehalf.config.schema import Config
from truehalf.data.images import LabelledImage
from truehalf.data.preprocessing import Preprocessing, beside_images, declared_by
from truehalf.data.samples import Arrays, Sample, Samples
from truehalf.errors import StageError, refuse, some_of
from truehalf.io_spec.inputs import input_spec, is_pixel_mask, traced_shape
from truehalf.io_spec.spec import InputSpec, IoSpec, fits
from truehalf.ir.facts import fed_inputs

if TYPE_CHECKING:
    import onnx_ir as ir

# Measured on the embedded D-FINE; with attention values times 2^7, data_max keeps 14 nodes FP32 by real
# images, and none by noise.
WARNING = (
    "calibrated on noise (data=random), whose ranges are not those of real images: of the embedded D-FINE, 13 % of the "
    "tensors reach less than half of their largest |x|. Give real samples"
)


def fitted(source: Samples, spec: IoSpec) -> Samples:
    """Make the samples of a source inputs of the model with this I/O spec.

    Raises:
        StageError: a category of the source is no class of the model; where a sample is read: arrays do not fit the
            inputs, an input cannot be made from an image, or a label is no class.
    """
    classes = _classes(source.categories, spec.class_names)
    images = _images(spec)

    def load(position: int) -> Sample:
        return _sample(source.names[position], source.load(position), spec, images, classes)

    return replace(source, load=load, preprocessing=next(iter(images.values()), None))


def adversarial_samples(config: Config, spec: IoSpec) -> list[Sample]:
    """Make images at the rim of the input range: all white, all black, and noise of nothing but the two, by the seed of
    the data; none for a model that takes no images.
    """
    images = _images(spec)
    if not images or not all(entry.name in images or _is_beside_images(entry) for entry in spec.inputs):
        return []
    height, width = _first_size(images)
    dots = np.random.default_rng(config.data.seed).integers(0, 2, (3, height, width)).astype(np.uint8) * 255
    made = {"white": np.full_like(dots, 255), "black": np.zeros_like(dots), "noise": dots}
    return [
        _sample(f"adversarial/{name}", LabelledImage.of_array(pixels.transpose(1, 2, 0)), spec, images)
        for name, pixels in made.items()
    ]


def feed_in_range(model: ir.Model, spec: IoSpec) -> Arrays:
    """Draw one input of a model in the range that its I/O spec declares, else not negative (seed 1).

    Returns:
        by input without a default, in their order: images of pixels uniform in their range, normalised as declared;
        other floats uniform in [0, 1); integers of 0 and 1; true for bools. An axis that varies is as long as it was
        traced, or the declared image; else it has one element.

    Raises:
        StageError: an input that is no tensor of numbers, or of an unknown rank; a preprocessing that cannot be as it
            is declared.
    """
    rng, entries = np.random.RandomState(1), {entry.name: entry for entry in spec.inputs}
    feed: Arrays = {}
    for value in fed_inputs(model):
        stated = input_spec(value)
        dtype = np.dtype(stated.dtype or "O")
        if stated.shape is None or dtype.kind not in "fiub":
            message = (
                f"input {value.name!r}: no value is drawn for {value.type}, shape {value.shape}; give calibration data"
            )
            raise StageError("needs-value", message)
        entry = replace(entries.get(stated.name, InputSpec(stated.name)), shape=stated.shape)
        shape, image = traced_shape(entry), declared_by(entry)
        if image is not None and len(shape) == 4 and dtype.kind in "fu":
            pixels = 255 * rng.random_sample((*(shape[2:] if image.layout == "NCHW" else shape[1:3]), 3))
            feed[stated.name] = np.stack([image.of_pixels(pixels, dtype.name)] * shape[0])
        elif dtype.kind == "f":
            feed[stated.name] = np.asarray(rng.random_sample(shape), dtype)
        else:
            feed[stated.name] = np.asarray(rng.randint(int(dtype.kind == "b"), 2, shape, dtype), dtype)
    return feed


def edge_inputs(feeds: Sequence[Mapping[str, np.ndarray]]) -> dict[str, Arrays]:
    """Make inputs at the rim of the range of samples: the first one with its floats black, white, 0, noise, with a row
    of zeros, and ten times as large, but for images, whose pixels end at white; by name, empty without floats.
    """
    first, random = feeds[0], np.random.default_rng(0)
    floats = {name: array for name, array in first.items() if array.dtype.kind == "f" and array.size}
    lowest = {name: min(feed[name].min() for feed in feeds) for name in floats}
    highest = {name: max(feed[name].max() for feed in feeds) for name in floats}
    without_row = {name: array.copy() for name, array in floats.items()}
    for array in without_row.values():
        array[(..., 0, slice(None)) if array.ndim > 1 else ...] = 0
    made: dict[str, Arrays] = {
        "black": {name: np.full_like(array, lowest[name]) for name, array in floats.items()},
        "white": {name: np.full_like(array, highest[name]) for name, array in floats.items()},
        "zeros": {name: np.zeros_like(array) for name, array in floats.items()},
        "noise": {
            name: random.uniform(lowest[name], highest[name], array.shape).astype(array.dtype)
            for name, array in floats.items()
        },
        "a row of zeros": without_row,
        "ten times a sample": {name: 10 * array for name, array in floats.items() if array.ndim != len("NCHW")},
    }
    return {name: {**first, **changed} for name, changed in made.items() if changed}


def _sample(
    name: str,
    item: LabelledImage | Arrays,
    spec: IoSpec,
    images: dict[str, Preprocessing],
    classes: np.ndarray | None = None,
) -> Sample:
    """Make one sample.

    Args:
        images: preprocessing by input of kind images.
        classes: int64, the model's class of each number that labels may have; None: labels are classes.
    """
    if not isinstance(item, LabelledImage):
        inputs = {entry.name: replace(entry, shape=entry.sides[1:]) for entry in spec.inputs}
        problems = list(misfits(item, list(inputs.values()), inputs))
        refuse("wrong-feeds", f"data: {name} does not fit the model, without the batch axis", problems)
        return Sample(name, {key: item[key] for key in inputs})
    arrays, boxes = {}, item.boxes
    for entry in spec.inputs:
        if entry.name in images:
            arrays[entry.name] = images[entry.name].apply(item.image, entry.dtype)
            boxes = None if item.boxes is None else images[entry.name].boxes(item.boxes, item.image.size)
        elif _is_beside_images(entry):
            arrays[entry.name] = beside_images(entry.name, entry.sides[1:], _first_size(images)).astype(entry.dtype)
        else:
            raise StageError(
                "not-supported",
                f"data: input {entry.name!r} is no image and no size of one; give arrays: data=npz or data=function",
            )
    labels = item.labels
    if labels is not None and classes is not None:
        labels = np.asarray(classes[labels])
    if labels is not None and ((labels < 0) | (labels >= len(spec.class_names))).any():
        message = f"data: {name}: expected labels from 0 to {len(spec.class_names) - 1}, got {labels.tolist()}"
        raise StageError("out-of-range", message)
    return Sample(name, arrays, boxes, labels, item.crowds)


def _images(spec: IoSpec) -> dict[str, Preprocessing]:
    """Preprocessing by input of kind images."""
    declared = {entry.name: declared_by(entry) for entry in spec.inputs if entry.kind == "images"}
    return {name: preprocessing for name, preprocessing in declared.items() if preprocessing is not None}


def _classes(categories: Sequence[str] | None, class_names: Sequence[str]) -> np.ndarray | None:
    """int64: the model's class of each category; None where labels are classes already."""
    if categories is None:
        return None
    classes = list(class_names)
    unknown = [name for name in categories if name not in classes]
    if unknown:
        raise StageError(
            "wrong-name",
            f"data: the model has no class named {some_of(map(repr, unknown), 20)}; its classes are "
            f"{some_of(map(repr, classes), 20) or 'none'}. Name them alike: in the annotations, or by "
            "model.classes, in the order of the model's classes",
        )
    return np.array([classes.index(name) for name in categories], np.int64)


def _is_beside_images(entry: InputSpec) -> bool:
    return entry.kind == "picture_size" or is_pixel_mask(entry)


def _first_size(images: dict[str, Preprocessing]) -> list[int]:
    """Height and width of the images that go in."""
    size = next((preprocessing.size for preprocessing in images.values()), None)
    if size is None:
        raise StageError("needs-value", "data: the size or mask of an image needs an input of kind images beside it")
    return size


def misfits(
    arrays: Mapping[str, np.ndarray], inputs: Sequence[InputSpec], needed: Collection[str], skipped: int = 0
) -> Iterator[str]:
    """Yield an error line for each array that does not fit its input, and for each needed input without one.

    Args:
        arrays: by name; only their shape and type are read.
        needed: names of inputs without a default.
        skipped: leading axes that are not compared.
    """
    entries = {entry.name: entry for entry in inputs}
    for name, array in arrays.items():
        if name not in entries:
            yield coded(
                "wrong-name", f"{name!r} is no input of the model; it has {', '.join(map(repr, entries)) or 'none'}"
            )
            continue
        shape, dtype = entries[name].shape, entries[name].dtype
        expected = f"expected {_wanted(entries[name])}, got {array.dtype} {list(array.shape)}"
        if shape is not None and not fits(shape[skipped:], array.shape[skipped:]):
            yield coded("wrong-shape", f"input {name!r}: {expected}")
        elif dtype and array.dtype != np.dtype(dtype):
            yield coded("wrong-dtype", f"input {name!r}: {expected}; convert the array")
    for name in needed:
        if name not in arrays:
            yield coded("missing-key", f"input {name!r} is missing; expected {_wanted(entries[name])}")


def _wanted(entry: InputSpec) -> str:
    """Type and shape of an input, such as "float32 [N, 3, 640, 640]"."""
    shape = "of any shape" if entry.shape is None else f"[{', '.join(map(str, entry.shape))}]"
    return f"{entry.dtype or 'an array of any type'} {shape}"
