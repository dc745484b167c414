"""Inputs and outputs as `model.*` declares them, for sources that do not know them of themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from truehalf.codes import coded
from truehalf.config.schema import Config, DecoderName, InputConfig, InputKind, Layout, OutputConfig, OutputKind
from truehalf.config.typed import frozen, plain
from truehalf.data.preprocessing import Preprocessing
from truehalf.errors import StageError
from truehalf.io_spec.spec import INSIDE, LAYOUT, InputSpec, IoSpec, OutputSpec, TensorSpec, input_of
from truehalf.json_values import JsonObject
from truehalf.models.calling import all_taken, named_tensors

IMAGES = "images"  # the one input of a model that declares none


def declared_inputs(config: Config, preprocessing: Preprocessing | None = None) -> list[InputSpec]:
    """`model.inputs`; null: one of images.

    Args:
        preprocessing: what the source knows of it; `model.preprocessing` and `model.image_size` go before it.
    """
    images = declared_preprocessing(config, preprocessing)
    if config.model.inputs is None:
        return [images_input(IMAGES, images)]
    return [_input(each, images) for each in config.model.inputs]


def images_input(
    name: str, images: Preprocessing, dtype: str = "float32", inside: JsonObject | None = None
) -> InputSpec:
    """An input of images, with all that truehalf.data.preprocessing.declared_by reads.

    Args:
        inside: mean and std, where the graph normalises by itself.
    """
    height, width = images.size or ("?", "?")
    sides = (3, height, width) if images.layout == Layout.nchw else (height, width, 3)
    pixels = dict(images.as_dict())
    outside = {"mean": pixels.pop("mean"), "std": pixels.pop("std"), "where": "before the graph"}
    pixels["normalization"] = outside if inside is None else {**inside, "where": INSIDE}
    return input_of(TensorSpec(name, None, dtype, ("batch", *sides)), "images", pixels)


def tensor_input(name: str, dtype: str, shape: Sequence[int | None], kind: str = "tensor") -> InputSpec:
    """An input of arrays; `shape` is that of one sample, None where a side may vary."""
    return InputSpec(name, kind, dtype, ("batch", *("?" if side is None else side for side in shape)))


def declared_preprocessing(config: Config, known: Preprocessing | None = None) -> Preprocessing:
    """From an image to the array; what is not declared is RGB in 0..1, stretched to the size, NCHW."""
    values = dict(frozen(plain(config.model.preprocessing)))
    height, width = config.model.image_size
    if height is not None and width is not None:
        values["size"] = [height, width]
    return replace(known or Preprocessing(), **{key: value for key, value in values.items() if value is not None})


def _input(declared: InputConfig, images: Preprocessing) -> InputSpec:
    dtype = declared.dtype or "float32"
    if declared.kind is InputKind.images:
        return images_input(declared.name, images, dtype)
    shape = (2,) if declared.kind is InputKind.picture_size else declared.shape or ()
    return tensor_input(declared.name, dtype, shape, declared.kind.value)


def outputs_of(config: Config, returned: Any) -> tuple[list[OutputSpec], list[str]]:
    """`model.outputs`, and what to take for each of what a module returned; null: every tensor of it.

    Raises:
        StageError: when what was returned cannot be the outputs, see truehalf.models.calling.all_taken.
    """
    if config.model.outputs is None:
        found = all_taken(returned, config.model.drop_outputs)
        return [OutputSpec(name) for name in found], list(found.values())
    named = named_tensors(returned)
    takes = [_take(each, position, named) for position, each in enumerate(config.model.outputs)]
    return declared_outputs(config.model.outputs), takes


def declared_outputs(outputs: Sequence[OutputConfig]) -> list[OutputSpec]:
    """As the I/O spec will have them."""
    found = []
    for each in outputs:
        kind = None if each.kind is OutputKind.tensor else each.kind.value
        found.append(OutputSpec(each.name, kind, **{key: getattr(each, key) for key in LAYOUT}))
    return found


def _take(declared: OutputConfig, position: int, named: dict[str, Any]) -> str:
    """The key, field or position; where it is not declared, the output's name, n of "output_n", or its position among
    them.
    """
    if declared.take is not None:
        return declared.take
    numbered = declared.name.removeprefix("output_")
    if numbered.isdigit() and numbered in named and declared.name not in named:
        return numbered
    return str(position) if declared.name not in named and str(position) in named else declared.name


def problems_of_declared(config: Config) -> Iterator[str]:
    """What is wrong with `model.inputs`, `model.outputs` and `model.drop_outputs` beyond types."""
    model = config.model
    for i, each in enumerate(model.inputs or ()):
        yield from _problems_of_input(f"model.inputs[{i}]", each)
    if model.inputs is not None and not model.inputs:
        message = f"model.inputs: expected one input or more, or null for one of images, {IMAGES!r}; got none"
        yield coded("needs-value", message)
    if model.outputs is not None:
        yield from _problems_of_outputs(model.outputs, model.classes or ())
        if model.drop_outputs:
            message = f"model.drop_outputs: expected [] beside model.outputs, got {plain(model.drop_outputs)}"
            yield coded("in-conflict", message)
    names = [IMAGES] if model.inputs is None else [each.name for each in model.inputs]
    for name in (each.name for each in model.outputs or ()):
        if name in names:
            message = f"model.outputs: {name!r} is the name of an input, too; expected different names"
            yield coded("given-twice", message)


def own_decoder(config: Config, what: str = "model") -> Iterator[str]:
    """Reject decoder=... for models that contain a decoder."""
    if config.decoder.name is not DecoderName.none:
        yield coded("in-conflict", f"decoder: the {what} brings one; expected none, got {config.decoder.name.value}")


def not_taken(config: Config, *keys: str) -> Iterator[str]:
    """Reject keys of `model` that are set, though the source knows them."""
    for key in keys:
        if value := getattr(config.model, key):
            message = f"model.{key}: source {config.model.source} knows it; expected null or [], got {plain(value)}"
            yield coded("in-conflict", message)


def known_of_source(config: Config, *keys: str) -> Iterator[str]:
    """Reject keys as `not_taken`; half a size; and NHWC, which no network that a source knows takes."""
    model = config.model
    yield from not_taken(config, *keys)
    if (size := list(model.image_size)).count(None) == 1:
        message = f"model.image_size: expected [height, width], or [null, null] for that of the model, got {size}"
        yield coded("needs-value", message)
    if model.preprocessing.layout is Layout.nhwc:
        message = f"model.preprocessing.layout: source {model.source} takes NCHW; expected NCHW or null, got NHWC"
        yield coded("in-conflict", message)


def takes_images(config: Config) -> bool:
    """Whether an input is declared to be images."""
    return config.model.inputs is None or any(each.kind is InputKind.images for each in config.model.inputs)


def _problems_of_input(where: str, declared: InputConfig) -> Iterator[str]:
    try:
        np.dtype(declared.dtype or "float32")
    except TypeError:
        message = f"{where}.dtype: expected a type as numpy calls it, such as float32 or int64, got {declared.dtype!r}"
        yield coded("unknown-choice", message)
    if declared.dtype in ("float16", "float64"):
        yield coded("wrong-dtype", f"{where}.dtype: the model is run in FP32; expected float32, got {declared.dtype}")
    if declared.kind is InputKind.images and declared.shape is not None:
        message = f"{where}.shape: model.image_size says the size of images; expected null, got {list(declared.shape)}"
        yield coded("in-conflict", message)
    if declared.kind is InputKind.picture_size and declared.shape not in (None, (2,)):
        message = f"{where}.shape: height and width; expected null or [2], got {plain(declared.shape)}"
        yield coded("wrong-shape", message)
    if declared.kind is InputKind.tensor:
        if declared.shape is None:
            message = f"{where}.shape: expected the sides of one sample, null where one may vary, got null"
            yield coded("needs-value", message)
        elif any(side is not None and side < 1 for side in declared.shape):
            message = f"{where}.shape: expected positive sides, null where one may vary, got {plain(declared.shape)}"
            yield coded("out-of-range", message)


def _problems_of_outputs(outputs: Sequence[OutputConfig], classes: Sequence[str]) -> Iterator[str]:
    from truehalf.io_spec.checks import check_spec

    if not outputs:
        yield coded("needs-value", "model.outputs: expected one output or more, or null for all of them; got none")
        return
    try:
        spec = IoSpec(outputs=tuple(declared_outputs(outputs)), class_names=tuple(classes))
        check_spec(spec, [each.name for each in outputs])
    except StageError as error:
        lines = [line.removeprefix("  - ") for line in error.text.splitlines()[1:]]
        yield from (coded(error.code, f"model.outputs: {line}") for line in lines)
