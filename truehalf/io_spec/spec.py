"""I/O spec of a model: its inputs and outputs, the names of its classes, and whether its weights are trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from truehalf.config.typed import plain, typed
from truehalf.errors import StageError, refuse
from truehalf.json_values import JsonObject

FIRST = "first"
INSIDE = "inside the graph"  # where a model normalises by itself
PIXELS = ("size", "channels", "range", "resize", "layout", "resample", "normalization")
LAYOUT = ("activation", "format", "normalized", "no_object", "columns", "axis")


@dataclass(frozen=True)
class TensorSpec:
    """An input or an output.

    Attributes:
        name: in the ONNX file.
        kind: of an input "images", "picture_size" or "tensor"; of an output see truehalf.io_spec.outputs; None: any.
        dtype: as numpy calls it.
        shape: numbers, and the names of sides that vary; None where it is not declared.
    """

    name: str
    kind: str | None = None
    dtype: str = "float32"
    shape: tuple[int | str, ...] | None = None

    @property
    def sides(self) -> tuple[int | str, ...]:
        """The shape; empty where it is not declared."""
        return self.shape or ()

    def to_json(self) -> JsonObject:
        """All that is declared."""
        content: JsonObject = _declared(plain(self))
        return content


@dataclass(frozen=True)
class Normalization:
    """Mean and std of three channels each, and whether the graph applies them."""

    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    where: str | None = None

    @property
    def inside(self) -> bool:
        return self.where == INSIDE


@dataclass(frozen=True)
class InputSpec(TensorSpec):
    """An input.

    Attributes:
        size: height and width in pixels.
        channels, range, resize, layout, resample, normalization: of images, see
            truehalf.data.preprocessing.declared_by; layout None is NCHW.
        traced: the shape it was traced with, where a side varies and nothing else gives its size.
    """

    size: tuple[int, ...] | None = None
    channels: str | None = None
    range: tuple[int | float, ...] | None = None
    resize: str | None = None
    layout: str | None = None
    resample: str | None = None
    normalization: Normalization | None = None
    traced: tuple[int, ...] | None = None

    @property
    def pixels(self) -> JsonObject:
        """Declared keys of PIXELS, as a file holds them."""
        return {key: value for key, value in self.to_json().items() if key in PIXELS}

    @property
    def height_width(self) -> tuple[int | str, ...]:
        """Sides that are height and width, of an input of images with a shape."""
        return self.sides[1:3] if self.layout == "NHWC" else self.sides[2:4]

    @property
    def is_normalized_inside(self) -> bool:
        return self.normalization is not None and self.normalization.inside


@dataclass(frozen=True)
class OutputSpec(TensorSpec):
    """An output; its kind says which of these are declared (truehalf.io_spec.outputs).

    Attributes:
        activation: "sigmoid", "softmax" or "identity".
        format: "cxcywh", "xyxy", "xywh" or "yxyx".
        normalized: whether boxes are in 0..1, not in pixels of the input.
        no_object: whether the last class is none; "first": the first is.
        columns: what is in them, in order, where one tensor holds detections (truehalf.io_spec.outputs).
        axis: of these columns, 1 or 2.
        batched: false where axis 0 counts the detections of an image, not images; without a kind such as masks, which
            are not compared.
    """

    activation: str | None = None
    format: str | None = None
    normalized: bool | None = None
    no_object: bool | str | None = None
    columns: tuple[str, ...] | None = None
    axis: int | None = None
    batched: bool | None = None


@dataclass(frozen=True)
class IoSpec:
    """Inputs and outputs of a model, in its order.

    Attributes:
        class_names: in the order of the model's classes; empty where they have none.
        trained: whether there are weights to trust.
    """

    inputs: tuple[InputSpec, ...] = ()
    outputs: tuple[OutputSpec, ...] = ()
    class_names: tuple[str, ...] = ()
    trained: bool = True

    @classmethod
    def from_json(cls, content: Any) -> IoSpec:
        """Read an I/O spec as files hold it; what its values must be is for `truehalf.io_spec.outputs.check_spec` to
        say.

        Raises:
            StageError: wrong-spec, listing unknown keys, missing names and values of another type.
        """
        if not isinstance(content, Mapping):
            raise StageError("wrong-spec", f"expected a mapping, got {type(content).__name__}")
        problems: list[str] = []
        spec: IoSpec = typed(cls, _declared(plain(content)), "", problems)
        refuse("wrong-spec", "the I/O spec does not fit", problems)
        return spec

    def to_json(self) -> JsonObject:
        content: JsonObject = _declared(plain(self))
        return content

    @property
    def tensors(self) -> tuple[TensorSpec, ...]:
        """Inputs, then outputs."""
        return (*self.inputs, *self.outputs)

    @property
    def image_input(self) -> InputSpec:
        """The first input of images, else the first; one without a name where there is none."""
        images = (each for each in self.inputs if each.kind == "images" or (each.kind is None and each.pixels))
        return next(images, next(iter(self.inputs), InputSpec("")))


def input_of(tensor: TensorSpec, kind: str, pixels: Mapping[str, object]) -> InputSpec:
    """An input with the keys of PIXELS that a mapping declares."""
    content = {"name": tensor.name, "dtype": tensor.dtype, "shape": tensor.shape, "kind": kind} | dict(pixels)
    return IoSpec.from_json({"inputs": [content]}).inputs[0]


def fits(declared: Sequence[object], sides: Sequence[object]) -> bool:
    """True if two shapes can be one; a side that is no number in either is free, and fits."""
    pairs = zip(declared, sides, strict=False)
    numbers = (pair for pair in pairs if all(isinstance(side, int) for side in pair))
    return len(declared) == len(sides) and all(one == other for one, other in numbers)


def _declared(value: Any) -> Any:
    """A value without the keys of mappings that are None, all the way down."""
    if isinstance(value, Mapping):
        return {key: _declared(item) for key, item in value.items() if item is not None}
    return [_declared(item) for item in value] if isinstance(value, list) else value
