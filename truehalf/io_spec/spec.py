"""I/O spec of a model: its inputs and outputs, the names of its classes, and whether its weights are trained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from truehalf.codes import coded
from truehalf.config.typed import did_you_mean
from truehalf.errors import StageError, refuse
from truehalf.json_values import JsonObject

FIRST = "first"
INSIDE = "inside the graph"  # where a model normalises by itself
KEYS = ("inputs", "outputs", "class_names", "trained")
PIXELS = ("size", "channels", "range", "resize", "layout", "resample", "normalization")
LAYOUT = ("activation", "format", "normalized", "no_object", "columns", "axis")
_NONE = type(None)
_LISTS = ("a list", (list, tuple))
_FORMS = {"shape": _LISTS, "size": _LISTS, "range": _LISTS, "normalization": ("a mapping", (Mapping,))}
_Form = TypeVar("_Form", bound="TensorSpec")


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
        shape = None if self.shape is None else list(self.shape)
        return _declared({"name": self.name, "dtype": self.dtype, "shape": shape, "kind": self.kind})


@dataclass(frozen=True)
class Normalization:
    """Mean and std of three channels each, where they are declared, and whether the graph applies them."""

    mean: Sequence[float] | None
    std: Sequence[float] | None
    inside: bool


@dataclass(frozen=True)
class InputSpec(TensorSpec):
    """An input.

    Attributes:
        pixels: of images, by the keys of PIXELS, which truehalf.data.preprocessing.declared_by reads; normalization
            is {mean, std, where}.
        traced: the shape it was traced with, where a side varies and nothing else gives its size.
    """

    pixels: Mapping[str, Any] = field(default_factory=dict)
    traced: tuple[int, ...] | None = None

    @property
    def layout(self) -> str:
        """ "NCHW" or "NHWC"."""
        return str(self.pixels.get("layout", "NCHW"))

    @property
    def size(self) -> tuple[int, int] | None:
        """Height and width in pixels, where they are declared."""
        size = self.pixels.get("size")
        return None if size is None else (size[0], size[1])

    @property
    def normalization(self) -> Normalization:
        declared = self.pixels.get("normalization") or {}
        return Normalization(declared.get("mean"), declared.get("std"), declared.get("where") == INSIDE)

    def to_json(self) -> JsonObject:
        return {**super().to_json(), **self.pixels, **_declared({"traced": self.traced and list(self.traced)})}


@dataclass(frozen=True)
class Columns:
    """Where a part of an output lies (truehalf.io_spec.columns).

    Attributes:
        output: the name of the whole.
        axis: of its columns; None: it has none, and the part is all of it.
        start, stop: the first column, and the first that is not of the part; None: all that are left.
        factor: the column that the part is multiplied by; None: none.
        is_single: the axis has but one column, and the part does without.
        is_one_image: the output has no axis of images; the part gets one, and is filled up to ROWS_OF_IMAGE.
    """

    output: str
    axis: int | None
    start: int
    stop: int | None
    factor: int | None = None
    is_one_image: bool = False
    is_single: bool = False


@dataclass(frozen=True)
class OutputSpec(TensorSpec):
    """An output; its kind says which of these are declared (truehalf.io_spec.outputs).

    Attributes:
        activation: "sigmoid", "softmax" or "identity".
        format: "cxcywh", "xyxy", "xywh" or "yxyx".
        normalized: whether boxes are in 0..1, not in pixels of the input.
        no_object: whether the last class is none; "first": the first is.
        columns: what is in them, in order, where one tensor holds detections (truehalf.io_spec.columns).
        axis: of these columns, 1 or 2.
        batched: false where axis 0 counts the detections of an image, not images; without a kind such as masks, which
            are not compared.
        part_of: of what is compared as an output, and is a part of one; no file holds that.
    """

    activation: str | None = None
    format: str | None = None
    normalized: bool | None = None
    no_object: bool | str | None = None
    columns: tuple[str, ...] | None = None
    axis: int | None = None
    batched: bool | None = None
    part_of: Columns | None = None

    def to_json(self) -> JsonObject:
        columns = list(self.columns) if isinstance(self.columns, tuple) else self.columns
        told = {key: getattr(self, key) for key in (*LAYOUT, "batched")}
        return {**super().to_json(), **_declared(told | {"columns": columns})}


@dataclass(frozen=True)
class IoSpec:
    """What goes into a model and what comes out.

    Attributes:
        inputs, outputs: in the model's order.
        class_names: in the order of the model's classes; empty where they have none.
        trained: whether there are weights to trust.
        unknown: of each key of the JSON it was read from that no I/O spec has, a sentence.
    """

    inputs: tuple[InputSpec, ...] = ()
    outputs: tuple[OutputSpec, ...] = ()
    class_names: tuple[str, ...] = ()
    trained: bool = True
    unknown: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, content: Any) -> IoSpec:
        """An I/O spec as files hold it; what its values must be is for `truehalf.io_spec.outputs.check_spec` to say.

        Raises:
            StageError: where it is no mapping, or inputs and outputs are no lists of mappings with a name.
        """
        if not isinstance(content, Mapping):
            raise StageError("wrong-spec", f"expected a mapping, got {type(content).__name__}")
        refuse("wrong-spec", "the I/O spec does not fit", list(_malformed(content)))
        return cls(
            inputs=tuple(_read(InputSpec, each) for each in content.get("inputs", ())),
            outputs=tuple(_read(OutputSpec, each) for each in content.get("outputs", ())),
            class_names=tuple(content.get("class_names") or ()),
            trained=content.get("trained", True),
            unknown=tuple(_unknown(content)),
        )

    def to_json(self) -> JsonObject:
        return {
            "inputs": [each.to_json() for each in self.inputs],
            "outputs": [each.to_json() for each in self.outputs],
            "class_names": list(self.class_names),
            "trained": self.trained,
        }

    @property
    def tensors(self) -> tuple[TensorSpec, ...]:
        """Inputs, then outputs."""
        return (*self.inputs, *self.outputs)

    @property
    def image_input(self) -> InputSpec:
        """The first input of images, else the first; one without a name where there is none."""
        images = (each for each in self.inputs if each.kind == "images" or (each.kind is None and each.pixels))
        return next(images, next(iter(self.inputs), InputSpec("")))


def _malformed(content: Mapping[str, Any]) -> Iterator[str]:
    for key in ("inputs", "outputs"):
        value = content.get(key, [])
        if not isinstance(value, Sequence) or not all(isinstance(each, Mapping) and "name" in each for each in value):
            yield coded("wrong-type", f"{key}: expected a list of mappings, each with a name, got {value!r}")
            continue
        for entry in value:
            for each, (called, forms) in _FORMS.items():
                if not isinstance(got := entry.get(each), (*forms, _NONE)):
                    yield coded("wrong-type", f"{key}: {entry['name']}: {each}: expected {called}, got {got!r}")
    names = content.get("class_names")
    if not isinstance(names, (list, tuple, _NONE)):
        yield coded("wrong-type", f"class_names: expected a list of names, got {names!r}")


def _unknown(content: Mapping[str, Any]) -> Iterator[str]:
    """Keys that nothing reads, of the whole, of inputs and of outputs."""
    of_inputs, of_outputs = (_keys(form) for form in (InputSpec, OutputSpec))
    places = [("", content, [*KEYS])]
    places += [(f"input {each['name']!r}: ", each, [*of_inputs, *PIXELS]) for each in content.get("inputs", ())]
    places += [(f"output {each['name']!r}: ", each, of_outputs) for each in content.get("outputs", ())]
    for place, entry, known in places:
        for key in (key for key in entry if key not in known):
            yield f"{place}{key}: expected {', '.join(known)}{did_you_mean(str(key), known)}"


def _keys(form: type[TensorSpec]) -> list[str]:
    """What a file may say of an input or an output; of an image, PIXELS besides."""
    return [each.name for each in fields(form) if each.name not in ("pixels", "part_of")]


def _read(form: type[_Form], entry: Mapping[str, Any]) -> _Form:
    known = _keys(form)
    values: dict[str, Any] = {key: value for key, value in _declared(entry).items() if key in known}
    values |= {key: tuple(value) for key, value in values.items() if isinstance(value, list)}
    if form is InputSpec:
        values["pixels"] = {key: value for key, value in entry.items() if key not in known}
    return form(**values)


def fits(declared: Sequence[object], sides: Sequence[object]) -> bool:
    """Whether two shapes can be one; a side that is no number in either is free, and fits."""
    pairs = zip(declared, sides, strict=False)
    numbers = (pair for pair in pairs if all(isinstance(side, int) for side in pair))
    return len(declared) == len(sides) and all(one == other for one, other in numbers)


def _declared(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}
