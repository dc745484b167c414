"""Inputs of an ONNX file as entries of an I/O spec: as the file states them, and as values and names suggest.

images        four axes, three of the channels' axis
picture_size  two of the last axis: integers that are named as a size, or floats of FLOAT_SIZES
tensor        any other
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from truehalf.io_spec.spec import InputSpec, input_of
from truehalf.ir.facts import fed_inputs
from truehalf.json_values import JsonObject

if TYPE_CHECKING:
    import onnx_ir as ir

PIXEL_MASK = "pixel_mask"  # as transformers names that of DETR
_FLOAT_SIZES = ("im_shape", "scale_factor")  # as PaddleDetection names them
_NAMED_AS_SIZE = re.compile(r"size|shape|hw$|height|width", re.IGNORECASE)
_NORMALIZATIONS = {  # the narrowest first: pixels that the second takes to 0..1 may well do so by the last, too
    "the mean and std 0.5": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "ImageNet's mean and std": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}


def input_spec(value: ir.Value) -> InputSpec:
    """Name, dtype ("" if unknown) and shape of an input; a side that varies by its name, "?" without one."""
    dtype = "" if value.dtype is None else value.dtype.numpy().name
    if value.shape is None:
        return InputSpec(str(value.name), dtype=dtype)
    numbers = [side if isinstance(side, int) else side.value for side in value.shape]
    sides = [str(side or "?") if not isinstance(side, int) else side if side >= 0 else "?" for side in numbers]
    return InputSpec(str(value.name), dtype=dtype, shape=tuple(sides))


def inputs_of(model: ir.Model) -> list[InputSpec]:
    """Inputs without a default, as the file states them."""
    return list(map(input_spec, fed_inputs(model)))


def channels_axis(sides: Sequence[object]) -> int | None:
    """1 or 3: the axis of the three channels of images; None where the sides are not those of images."""
    return next((axis for axis in (1, 3) if len(sides) == 4 and sides[axis] == 3), None)


def is_picture_size(entry: InputSpec, sides: Sequence[object]) -> bool:
    """True for height and width of each image, or how far it was scaled."""
    is_of_integers = "int" in entry.dtype and _NAMED_AS_SIZE.search(entry.name) is not None
    return list(sides[1:]) == [2] and (is_of_integers or entry.name in _FLOAT_SIZES)


def is_pixel_mask(entry: InputSpec) -> bool:
    """True for the mask of pixels that are no padding, [N, height, width]."""
    return entry.name == PIXEL_MASK and len(entry.sides) == 3


def kind_beside_images(entry: InputSpec) -> str | None:
    """Return the kind of an input that images feed beside themselves, "tensor" of a pixel mask; None: another input."""
    if is_pixel_mask(entry):
        return "tensor"
    return "picture_size" if is_picture_size(entry, entry.sides) else None


def proposed_input(entry: InputSpec, array: np.ndarray) -> tuple[InputSpec, str]:
    """Propose the kind of an input, and of images layout, range and normalization, from what goes in; and why."""
    axis = channels_axis(array.shape)
    if axis is not None and array.size:
        pixels, seen = _range(np.moveaxis(array, axis, -1))
        layout = "NCHW" if axis == 1 else "NHWC"
        reason = f"four axes, 3 channels in axis {axis}; {seen}"
        return input_of(entry, "images", {"layout": layout, **pixels}), reason
    if is_picture_size(entry, array.shape):
        return input_of(entry, "picture_size", {}), "two numbers for each image"
    return input_of(entry, "tensor", {}), ""


def _range(pixels: np.ndarray) -> tuple[JsonObject, str]:
    """Range and normalization of images [..., 3]."""
    low, high = float(pixels.min()), float(pixels.max())
    seen = f"values from {low:.3g} to {high:.3g}"
    if low >= 0:
        return {"range": [0, 255 if high > 1.0 + 1e-3 else 1]}, seen
    for named, (mean, std) in _NORMALIZATIONS.items():
        back = pixels.reshape(-1, 3) * std + mean
        if back.min() >= -0.01 and back.max() <= 1.01:
            given = {"mean": list(mean), "std": list(std)}
            return {"range": [0, 1], "normalization": given}, f"{seen}, which {named} take to 0..1"
    return {}, f"{seen}: normalised, in a way that is not known"


def traced_shape(entry: InputSpec) -> list[int]:
    """The shape of an input of an I/O spec as it was traced, 1 on the axis of samples where that varies."""
    sides = entry.sides
    height, width = entry.size or (None, None)
    image = [3, height, width] if entry.layout != "NHWC" else [height, width, 3]
    known: Sequence[int | None] = entry.traced or (
        [None, *image] if entry.kind == "images" and len(sides) == 4 else [None] * len(sides)
    )
    return [side if isinstance(side, int) else known[axis] or 1 for axis, side in enumerate(sides)]
