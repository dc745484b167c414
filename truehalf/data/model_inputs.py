"""Inputs of an ONNX file as entries of an I/O spec; those that a folder of images feeds: images, their size, a mask."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from truehalf.config.schema import Layout
from truehalf.data.preprocessing import Preprocessing
from truehalf.errors import StageError
from truehalf.io_spec.inputs import PIXEL_MASK, channels_axis, input_spec, is_picture_size, is_pixel_mask
from truehalf.io_spec.spec import InputSpec, input_of
from truehalf.ir.facts import constant_of, fed_inputs, is_op, reached
from truehalf.ir.ops import MOVES

if TYPE_CHECKING:
    import onnx_ir as ir

_DTYPES = ("float32", "float16", "float64", "uint8")  # of images
_AXES = 4
_OF_BYTES = 50  # below 255, and deviations of pixels in 0..255 (ImageNet's are 57 to 59); far above those of 0..1


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
    without_pixels = [entry for entry in needed if is_picture_size(entry, entry.sides) or is_pixel_mask(entry)]
    images = [entry for entry in needed if entry not in without_pixels]
    if len(images) != 1:
        names = ", ".join(repr(entry.name) for entry in needed) or "none"
        raise StageError(
            "not-supported",
            "a folder of images feeds a model with one input of images, integers [N, 2] named as a size, and a "
            f"{PIXEL_MASK} [N, height, width]; this one has {names}; give arrays (.npz)",
        )
    (image,) = images
    if image.dtype not in _DTYPES:
        expected = f"expected images in {', '.join(_DTYPES)}, got {image.dtype}; give arrays (.npz)"
        raise StageError("wrong-dtype", f"input {image.name!r}: {expected}")
    if image.shape is not None and len(image.shape) != _AXES:
        expected = f"expected 4 axes for images, got {len(image.shape)}; give arrays (.npz)"
        raise StageError("wrong-shape", f"input {image.name!r}: {expected}")
    kinds = {entry.name: "tensor" if is_pixel_mask(entry) else "picture_size" for entry in without_pixels}
    declared = input_of(image, "images", _resolved(preprocessing, image).declared())
    return (declared, *(replace(entry, kind=kinds[entry.name]) for entry in without_pixels))


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


def _resolved(preprocessing: Preprocessing, image: InputSpec) -> Preprocessing:
    """The preprocessing with its size, checked against the input."""
    sides = image.sides or ("?",) * _AXES
    height, width = replace(image, shape=sides, layout=preprocessing.layout).height_width
    channels = sides[3] if preprocessing.layout == "NHWC" else sides[1]
    size = preprocessing.size or [side for side in (height, width) if isinstance(side, int)]
    if len(size) != 2:
        missing = f"size is missing, and input {image.name!r} does not fix it; give size: [height, width]"
        raise StageError("needs-value", f"preprocessing: {missing}")
    for what, wanted, got in (("height", height, size[0]), ("width", width, size[1]), ("channels", channels, 3)):
        if isinstance(wanted, int) and wanted != got:
            raise StageError(
                "wrong-shape",
                f"preprocessing, layout {preprocessing.layout}: input {image.name!r} wants {what} {wanted}, got {got}; "
                f"expected an image of {list(sides[1:])}: say its --size or --layout; else give arrays (.npz)",
            )
    is_plain = preprocessing.range == (0, 255) and not any(preprocessing.mean) and {*preprocessing.std} == {1}
    if image.dtype == "uint8" and not is_plain:
        message = f"preprocessing: input {image.name!r} is uint8; expected range [0, 255], no mean, no std"
        raise StageError("in-conflict", message)
    return replace(preprocessing, size=size)
