"""Inputs of an ONNX file that a folder of images feeds: images, their size, and a mask of their pixels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from truehalf.config.schema import Layout
from truehalf.data.preprocessing import PIXEL_MASK, Preprocessing
from truehalf.errors import StageError
from truehalf.io_spec.proposed import FLOAT_SIZES, NAMED_AS_SIZE
from truehalf.io_spec.spec import InputSpec, TensorSpec, input_of
from truehalf.ir.facts import constant_of, fed_inputs, is_op, reached
from truehalf.ir.ops import MOVES

if TYPE_CHECKING:
    import onnx_ir as ir

_DTYPES = {"FLOAT": "float32", "FLOAT16": "float16", "DOUBLE": "float64", "UINT8": "uint8"}
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
    needed = image_inputs(model)
    beside = {str(value.name): kind for value in needed if (kind := _kind_beside_images(value))}
    images = [value for value in needed if value.name not in beside]
    if len(images) != 1:
        names = ", ".join(repr(value.name) for value in needed) or "none"
        message = (
            "a folder of images feeds a model with one input of images, integers [N, 2] named as a size, and a "
            f"{PIXEL_MASK} [N, height, width]; this one has {names}; give arrays (.npz)"
        )
        raise StageError("not-supported", message)
    value = images[0]
    if value.dtype is None or value.dtype.name not in _DTYPES:
        known = ", ".join(_DTYPES.values())
        message = f"input {value.name!r}: expected images in {known}, got {value.dtype}; give arrays (.npz)"
        raise StageError("wrong-dtype", message)
    if value.shape is not None and len(value.shape) != _AXES:
        message = f"input {value.name!r}: expected 4 axes for images, got {len(value.shape)}; give arrays (.npz)"
        raise StageError("wrong-shape", message)
    declared = _resolved(preprocessing, value).declared()
    first = input_of(TensorSpec(str(value.name), None, _DTYPES[value.dtype.name], _sides(value)), "images", declared)
    others = (
        InputSpec(str(each.name), beside[str(each.name)], np.dtype(each.dtype.numpy()).name, _sides(each))
        for each in needed
        if each is not value and each.dtype is not None
    )
    return (first, *others)


def shown_by(value: ir.Value) -> Preprocessing:
    """Layout and range as an input of images shows them, by its channels' axis, its type and the first arithmetic with
    constants: images of 0..255 are bytes, or what is divided by 255 or by deviations of such pixels, or has their means
    subtracted. Other keys are the defaults.
    """
    sides = tuple(value.shape or ())
    is_last = len(sides) == _AXES and sides[3] == 3 != sides[1]
    is_of_bytes = value.dtype is not None and value.dtype.name == "UINT8"
    return Preprocessing(
        layout=Layout.nhwc if is_last else Layout.nchw, range=(0, 255) if is_of_bytes or _takes_bytes(value) else (0, 1)
    )


def shown_in(model: ir.Model) -> Preprocessing:
    """As `shown_by`, of the input that images feed; the defaults of a model without inputs."""
    return next(map(shown_by, image_inputs(model)), Preprocessing())


def _sides(value: ir.Value) -> tuple[int | str, ...] | None:
    if value.shape is None:
        return None
    return tuple(side if isinstance(side, int) else str(side.value or "?") for side in value.shape)


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


def _kind_beside_images(value: ir.Value) -> str:
    """Kind of an input that says something of the images: "picture_size", "tensor" for a mask, "" for any other."""
    if value.shape is None or value.dtype is None:
        return ""
    name, dtype, shape = str(value.name), value.dtype.name, tuple(value.shape)
    if name == PIXEL_MASK and dtype in ("INT64", "INT32", "BOOL", "FLOAT") and len(shape) == _AXES - 1:
        return "tensor"
    is_of_integers = dtype in ("INT64", "INT32") and NAMED_AS_SIZE.search(name) is not None
    is_size = is_of_integers or (dtype == "FLOAT" and name in FLOAT_SIZES)
    return "picture_size" if is_size and len(shape) == 2 and shape[1] == 2 else ""


def _resolved(preprocessing: Preprocessing, value: ir.Value) -> Preprocessing:
    """The preprocessing with its size, checked against the input."""
    axes = (1, 2, 3) if preprocessing.layout == "NHWC" else (2, 3, 1)
    shape = [value.shape[axis] if value.shape is not None else None for axis in axes]
    height, width, channels = (side if isinstance(side, int) else None for side in shape)
    if preprocessing.size is None and (height is None or width is None):
        raise StageError(
            "needs-value",
            f"preprocessing: size is missing, and input {value.name!r} does not fix it; give size: [height, width]",
        )
    size = preprocessing.size or [int(height or 0), int(width or 0)]
    for what, wanted, got in (("height", height, size[0]), ("width", width, size[1]), ("channels", channels, 3)):
        if wanted is not None and wanted != got:
            raise StageError(
                "wrong-shape",
                f"preprocessing, layout {preprocessing.layout}: input {value.name!r} wants {what} {wanted}, got {got}"
                f"{_remedy(preprocessing, value, what)}",
            )
    if value.dtype is not None and value.dtype.name == "UINT8":
        plain = Preprocessing()
        if preprocessing.range != (0, 255) or (preprocessing.mean, preprocessing.std) != (plain.mean, plain.std):
            message = f"preprocessing: input {value.name!r} is uint8; expected range [0, 255], no mean, no std"
            raise StageError("in-conflict", message)
    return replace(preprocessing, size=size)


def _remedy(preprocessing: Preprocessing, value: ir.Value, what: str) -> str:
    axis, other = (3, "NHWC") if preprocessing.layout == "NCHW" else (1, "NCHW")
    if what != "height" and value.shape is not None and value.shape[axis] == 3:
        return f"; it is of layout {other}: say that (--layout)"
    return "; images have three: give arrays (.npz)" if what == "channels" else "; give that size"


def example_size(model: ir.Model) -> str:
    """Height and width that the input of images fixes, as --size takes them; else an example."""
    shape: Sequence[object] = next((list(value.shape or ()) for value in image_inputs(model)), [])
    sides = shape[1:3] if shape[-1:] == [3] else shape[2:4]
    return "x".join(map(str, sides)) if sides and all(isinstance(side, int) for side in sides) else "640x640"
