"""The configured model, and the I/O spec that describes it to later stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from truehalf.config.schema import Config
from truehalf.config.typed import did_you_mean
from truehalf.data.run_samples import TRACE_SAMPLES, run_samples
from truehalf.data.samples import Samples, filled
from truehalf.errors import StageError
from truehalf.io_spec.in_file import check_declared
from truehalf.io_spec.spec import InputSpec, IoSpec, TensorSpec
from truehalf.models import sources
from truehalf.models.as_made import aside
from truehalf.models.calling import as_tensors
from truehalf.models.declared import IMAGES
from truehalf.models.model import Model

if TYPE_CHECKING:
    import torch

_Tensor = TypeVar("_Tensor", bound=TensorSpec)
DynamicAxes = Mapping[str, Mapping[int, str]]
_DEFAULT_AXES = {0: "batch"}  # of trace.dynamic_axes.images in conf/config.yaml


def open_model(config: Config, root: Path) -> Model:
    """The configured model, with its weights, in eval mode on the CPU.

    Args:
        config: `model.*`, `decoder.name` and `seed` are read.
        root: the workspace; paths are relative to it.

    Raises:
        StageError: when weights are missing, corrupt or of another architecture, when a package that the source needs
            is not installed, or when the model has not what the configuration declares.
    """
    opened: Model = sources.source(config.model.source).open_model(config, root)
    return opened


def spec_of(model: Model, example: Mapping[str, np.ndarray], axes: DynamicAxes, rows: bool = False) -> IoSpec:
    """The I/O spec of a model, which is run on an example: arrays by input name, with their batch axis. See io_spec.

    Args:
        rows: whether each output needs a row for each sample.

    Raises:
        StageError: as io_spec; where outputs, as they are in this run, are not what they are declared to be.
    """
    import torch

    tensors = as_tensors(example, [each.name for each in model.inputs])
    with torch.no_grad():
        outputs = aside(model.module)(*tensors)
    spec = io_spec(model, tensors, outputs, axes)
    in_run = [replace(each, shape=tuple(values.shape)) for each, values in zip(spec.outputs, outputs, strict=True)]
    samples = len(tensors[0]) if tensors[0].ndim else 0
    for each in in_run if rows else ():
        if each.sides[:1] != (samples,):
            raise StageError(
                "wrong-shape",
                f"output {each.name!r} is {list(each.sides)} for {samples} samples; expected as many on its first "
                "axis; leave it out with model.drop_outputs, or return a row for each sample",
            )
    check_declared(replace(spec, outputs=tuple(in_run)))
    return spec


def io_spec(
    model: Model, example: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor], axes: DynamicAxes
) -> IoSpec:
    """What goes in and comes out, as traced.

    Args:
        example: the inputs of a call, in order.
        outputs: what the module returned for them, in order.
        axes: `trace.dynamic_axes`. The first axis of an output that is not named there is called as that of the first
            input, where that varies.

    Raises:
        StageError: when `axes` names an unknown input or output, or an axis beyond its rank.
    """
    names = [each.name for each in model.inputs] + [each.name for each in model.outputs]
    unknown = [name for name in axes if name not in names]
    if unknown:
        like = "".join(did_you_mean(name, names) for name in unknown)
        message = f"trace.dynamic_axes: no input or output {', '.join(unknown)}; the model has {', '.join(names)}{like}"
        raise StageError("wrong-name", message)
    batch = axes.get(model.inputs[0].name, {}).get(0)
    named = {each.name: axes.get(each.name, {} if batch is None else {0: batch}) for each in model.outputs}
    taken, given = zip(model.inputs, example, strict=True), zip(model.outputs, outputs, strict=True)
    return IoSpec(
        inputs=tuple(_traced(each, tensor, axes.get(each.name, {})) for each, tensor in taken),
        outputs=tuple(_as_run(each, tensor, named[each.name]) for each, tensor in given),
        class_names=tuple(model.class_names),
        trained=model.trained,
    )


def dynamic_axes_of(config: Config, model: Model) -> dict[str, dict[int, str]]:
    """The axes that vary: those of a file, else `trace.dynamic_axes`. An input that is not named there has a row for
    each sample, too, so its first axis is called as that of the first input, where that varies.
    """
    if model.axes is not None:
        return {name: dict(axes) for name, axes in model.axes.items()}
    axes = {name: dict(axes) for name, axes in config.trace.dynamic_axes.items()}
    inputs = {each.name for each in model.inputs}
    if IMAGES not in inputs and axes.get(IMAGES) == _DEFAULT_AXES:  # what conf/config.yaml says, of no input of these
        del axes[IMAGES]
        axes.setdefault(model.inputs[0].name, dict(_DEFAULT_AXES))
    batch = axes.get(model.inputs[0].name, {}).get(0)
    if batch is None:
        return axes
    return {each.name: {0: batch} for each in model.inputs if each.name not in axes} | axes


def samples_to_trace(model: Model, config: Config, root: Path) -> tuple[Samples, int, dict[str, np.ndarray]]:
    """Read samples to trace on, all of them; the batch that is traced; and the feed of that batch."""
    samples, batch = run_samples("trace", config, root, described(model)), model.batch or config.trace.batch
    return samples, batch, filled(samples[: min(batch, TRACE_SAMPLES // 2)], batch)


def described(model: Model) -> IoSpec:
    """The I/O spec as far as it is known before a run, and as samples need it: inputs and class_names."""
    return IoSpec(tuple(model.inputs), class_names=tuple(model.class_names))


def _as_run(tensor: _Tensor, values: torch.Tensor, axes: Mapping[int, str]) -> _Tensor:
    """With the dtype and the shape that it has in a run, but for the names of axes."""
    shape: list[int | str] = list(values.shape)
    for axis, symbol in axes.items():
        if axis >= len(shape):
            raise StageError(
                "out-of-range",
                f"trace.dynamic_axes.{tensor.name}: axis {axis} does not exist, rank is {len(shape)}; an output "
                "without a row for each sample is left out with model.drop_outputs",
            )
        shape[axis] = symbol
    return replace(tensor, dtype=str(values.dtype).removeprefix("torch."), shape=tuple(shape))


def _traced(declared: InputSpec, values: torch.Tensor, axes: Mapping[int, str]) -> InputSpec:
    """With what a run says of it; where a side varies and nothing else gives its size, the traced shape, too."""
    needed = not declared.pixels and any(axis > 0 for axis in axes)
    return replace(_as_run(declared, values, axes), traced=tuple(values.shape) if needed else None)
