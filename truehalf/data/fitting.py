"""Samples of a source as inputs of a model: an image goes through the preprocessing that the I/O spec declares, arrays
go in as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from truehalf.data.preprocessing import PIXEL_MASK, Preprocessing, beside_images, declared_by
from truehalf.data.samples import Arrays, Sample, Samples
from truehalf.data.sources import Item, LabelledImage, Source
from truehalf.errors import StageError, some_of
from truehalf.io_spec.spec import InputSpec, IoSpec, fits


def fitted(source: Source, spec: IoSpec) -> Samples:
    """Make the samples of a source inputs of the model with this I/O spec.

    Raises:
        StageError: a category of the source is no class of the model; and as `sample_of`, where a sample is read.
    """
    classes = _classes(source, spec.class_names)

    def load(position: int) -> Sample:
        return sample_of(source.names[position], source.load(position), spec, classes)

    images = [entry for entry in spec.inputs if entry.kind == "images"]
    preprocessing = declared_by(images[0]) if images else None
    return Samples(source.names, load, source.paths, preprocessing=preprocessing)


def sample_of(name: str, item: Item, spec: IoSpec, classes: np.ndarray | None = None) -> Sample:
    """Make one sample.

    Args:
        classes: int64, the model's class of each number that labels may have; None: labels are classes.

    Raises:
        StageError: arrays do not fit the inputs, an input cannot be made from an image, or a label is no class.
    """
    if not isinstance(item, LabelledImage):
        return Sample(name, _checked(name, item, spec.inputs))
    arrays, boxes = {}, item.boxes
    for entry in spec.inputs:
        if entry.kind == "images":
            preprocessing = _preprocessing(entry)
            arrays[entry.name] = preprocessing.apply(item.image, entry.dtype)
            boxes = None if item.boxes is None else preprocessing.boxes(item.boxes, item.image.size)
        elif _is_beside_images(entry):
            arrays[entry.name] = beside_images(entry.name, entry.sides[1:], _first_size(spec)).astype(entry.dtype)
        else:
            raise StageError(
                "not-supported",
                f"data: input {entry.name!r} is no image and no size of one; give arrays: data=npz or data=function",
            )
    return Sample(name, arrays, boxes, _labels(name, item, len(spec.class_names), classes), item.crowds)


def adversarial_samples(spec: IoSpec, seed: int) -> list[Sample]:
    """Make images at the rim of the input range: all white, all black, and noise of nothing but the two; none for a
    model that takes no images.
    """
    others = [entry for entry in spec.inputs if entry.kind != "images"]
    if len(others) == len(spec.inputs) or not all(map(_is_beside_images, others)):
        return []
    height, width = _first_size(spec)
    dots = np.random.default_rng(seed).integers(0, 2, (3, height, width)).astype(np.uint8) * 255
    made = {"white": np.full_like(dots, 255), "black": np.zeros_like(dots), "noise": dots}
    return [
        sample_of(f"adversarial/{name}", LabelledImage.of_array(pixels.transpose(1, 2, 0)), spec)
        for name, pixels in made.items()
    ]


def _classes(source: Source, class_names: Sequence[str]) -> np.ndarray | None:
    """int64: the model's class of each category of the source; None where labels are classes already."""
    if source.categories is None:
        return None
    classes = list(class_names)
    unknown = [name for name in source.categories if name not in classes]
    if unknown:
        raise StageError(
            "wrong-name",
            f"data: the model has no class named {some_of(map(repr, unknown), 20)}; its classes are "
            f"{some_of(map(repr, classes), 20) or 'none'}. Name them alike: in the annotations, or by "
            "model.classes, in the order of the model's classes",
        )
    return np.array([classes.index(name) for name in source.categories], np.int64)


def _is_beside_images(entry: InputSpec) -> bool:
    return entry.kind == "picture_size" or (entry.name == PIXEL_MASK and len(entry.sides) == 3)


def _labels(name: str, item: LabelledImage, count: int, classes: np.ndarray | None) -> np.ndarray | None:
    if item.labels is None or classes is not None:
        return None if item.labels is None or classes is None else np.asarray(classes[item.labels])
    odd = item.labels[(item.labels < 0) | (item.labels >= count)]
    if odd.size:
        raise StageError("out-of-range", f"data: {name}: expected labels from 0 to {count - 1}, got {odd[0]}")
    return item.labels


def _preprocessing(entry: InputSpec) -> Preprocessing:
    preprocessing = declared_by(entry)
    assert preprocessing is not None, "of kind images"
    return preprocessing


def _first_size(spec: IoSpec) -> list[int]:
    """Height and width of the images that go in."""
    sizes = [_preprocessing(entry).size for entry in spec.inputs if entry.kind == "images"]
    if not sizes or sizes[0] is None:
        raise StageError("needs-value", "data: the size or mask of an image needs an input of kind images beside it")
    return sizes[0]


def _checked(name: str, arrays: Arrays, inputs: Sequence[InputSpec]) -> Arrays:
    """Arrays in the order of the inputs, each of its type and shape."""
    expected = [entry.name for entry in inputs]
    if sorted(expected) != sorted(arrays):
        got = ", ".join(arrays) or "none"
        message = f"data: {name}: expected arrays for the inputs {', '.join(expected)}, got {got}"
        raise StageError("wrong-name", message)
    for entry in inputs:
        array, shape = arrays[entry.name], list(entry.sides[1:])
        is_shape = fits(shape, array.shape)
        if array.dtype != entry.dtype or not is_shape:
            raise StageError(
                "wrong-dtype" if is_shape else "wrong-shape",
                f"data: {name}: input {entry.name!r}: expected {entry.dtype} {shape}, without the batch axis, got "
                f"{array.dtype} {list(array.shape)}",
            )
    return {each: arrays[each] for each in expected}
