"""An FP32 ONNX file that is there already: trace checks it and passes it on, and it is the reference itself.

Inputs, outputs and the axes that vary are the file's; trace.exporter, trace.opset and trace.dynamic_axes are not used,
and trace's notes say so where they are set.
What its outputs mean is given by model.outputs, or by an I/O spec in the file's metadata (`truehalf.io_spec`), which
also says the inputs, the classes and whether the weights are trained, where model.* does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from truehalf.codes import coded
from truehalf.config.schema import Config, TraceConfig
from truehalf.config.typed import plain
from truehalf.errors import StageError
from truehalf.io_spec.in_file import SPEC_KEY, names_of, spec_inside
from truehalf.io_spec.spec import IoSpec
from truehalf.models.common_problems import own_decoder
from truehalf.models.declared import problems_of_declared
from truehalf.models.model import Model
from truehalf.models.onnx_ends import axes_of, batch_of, inputs_of, no_rows, outputs_of

if TYPE_CHECKING:
    import onnx_ir as ir
    import torch


@dataclass(frozen=True)
class Options:
    """See model/onnx.yaml.

    Attributes:
        trained: whether there are weights to trust.
    """

    trained: bool


def problems(config: Config) -> Iterator[str]:
    """What is wrong with `model.*` beyond types."""
    model = config.model
    yield from own_decoder(config, "file")
    if model.checkpoint is None:
        message = "model.checkpoint: model=onnx needs an FP32 ONNX file: model.checkpoint=/path/to/model.onnx"
        yield coded("needs-value", message)
    if model.drop_outputs:
        message = f"model.drop_outputs: a file keeps all its outputs; expected [], got {plain(model.drop_outputs)}"
        yield coded("in-conflict", message)
    for i, each in enumerate(model.outputs or ()):
        if each.take is not None:
            message = f"model.outputs[{i}].take: outputs of a file are known by name; expected null, got {each.take!r}"
            yield coded("in-conflict", message)
    yield from problems_of_declared(config)


def files(config: Config, root: Path) -> list[Path]:
    """The file, and those that its weights are in."""
    from truehalf.ir.model_forms import ModelFile

    if config.model.checkpoint is None:
        return []
    path = root / config.model.checkpoint
    return [path, *ModelFile(path).data] if path.is_file() else [path]


def open_model(config: Config, root: Path) -> Model:
    """The file, as a torch module that runs it in ONNX Runtime.

    Raises:
        StageError: when the file cannot be read or run, is FP16 in part, has inputs of unknown kind, or
            has not what model.* declares.
    """
    from truehalf.ir.inlining import WeightsApart, said_of, weights_taken_out
    from truehalf.ir.model_file import load_model
    from truehalf.ir.normalize import InferTypes

    assert config.model.checkpoint is not None, "checked by problems"
    path = root / config.model.checkpoint
    model = load_model(path)
    WeightsApart(of_any_version=True)(model)
    InferTypes()(model)
    _check_fp32(model, path)
    spec = _spec_inside(model, path)
    inputs = inputs_of(config, model, spec)
    outputs = outputs_of(config, model, spec, path)
    batch = batch_of(model, path)
    return Model(
        module=_runtime_class()(path, [each.name for each in inputs], [each.name for each in outputs], batch),
        inputs=inputs,
        outputs=outputs,
        class_names=config.model.classes or spec.class_names,
        trained=config.model.options.trained and bool(spec.trained),
        file=path,
        axes=axes_of(model),
        batch=batch,
        notes=[
            *([said_of(names)] if (names := weights_taken_out(model)) else []),
            *([f"I/O spec: from the file's metadata ({SPEC_KEY})"] if spec.inputs else []),
            *_of_no_use(config),
        ],
    )


def _of_no_use(config: Config) -> Iterator[str]:
    """Keys of tracing that were set, though nothing is traced. No error: one command line may serve several models."""
    defaults = TraceConfig()
    for key in ("exporter", "opset", "dynamic_axes"):
        value = getattr(config.trace, key)
        if value != getattr(defaults, key):
            yield f"trace.{key}: {plain(value)} is not used; the file is passed on as it is"


def _check_fp32(model: ir.Model, path: Path) -> None:
    """Refuse FP16 anywhere, other floats than FP32 at the ends, and inputs that runs cannot feed sample by sample."""
    for code, problem in _problems_of(model):
        raise StageError(code, f"model.checkpoint: {path}: {problem}")


def _problems_of(model: ir.Model) -> Iterator[tuple[str, str]]:
    import onnx_ir as ir

    from truehalf.ir.facts import all_nodes
    from truehalf.ir.proto.one_image import IMAGE
    from truehalf.ir.proto.plugins import not_run

    half_types = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
    weights = [
        value
        for graph in model.graphs()
        for value in graph.initializers.values()
        if value.const_value is not None and value.const_value.dtype in half_types
    ]
    every = all_nodes(model, functions=True)
    nodes = [node for node in every if any(value.dtype in half_types for value in node.outputs)]
    ends = [value for value in (*model.graph.inputs, *model.graph.outputs) if value.dtype in half_types]
    if weights or nodes or ends:
        first = [f"{value.name!r}" for value in (*ends, *weights)] + [f"node {node.name!r}" for node in nodes]
        yield (
            "wrong-dtype",
            f"it is in half precision, in whole or in part: {len(weights)} weights, {len(nodes)} nodes, {len(ends)} "
            f"inputs and outputs, such as {first[0]}; expected the FP32 file that it was made from: FP16 is made here, "
            "and compared with FP32",
        )
    if line := not_run(model):
        yield "not-supported", f"{line}; `truehalf convert` takes it as it is, the pipeline without these nodes"
    if image := model.meta.get(IMAGE):
        alone = f"input {image!r} is one image, without an axis of images"
        yield "not-supported", f"{alone}; `truehalf convert` takes it as it is, the pipeline with that axis"
    if not model.graph.inputs:
        yield "wrong-file", "it has no inputs; expected a model that computes from its inputs"
    for value in (*model.graph.inputs, *model.graph.outputs):
        if value.dtype is None or value.shape is None:
            yield "wrong-file", f"{value.name!r} has no type or no shape; export the model anew"
        elif not isinstance(value.type, ir.TensorType):
            yield "not-supported", f"{value.name!r} is a {value.type}; expected tensors: leave it out"
        elif value.dtype.is_floating_point() and value.dtype != ir.DataType.FLOAT:
            expected = "expected floats at the ends to be FLOAT, which is FP32; export the model in FP32"
            yield "wrong-dtype", f"{value.name!r} is {value.dtype.name}; {expected}"
    for value in model.graph.inputs:
        if value.const_value is not None:
            expected = "expected inputs without; export the model without keeping initializers as inputs"
            yield "wrong-file", f"input {value.name!r} has a value in the file, too, which runs may replace; {expected}"
        if not len(value.shape or ()):
            yield "wrong-shape", f"input {value.name!r} has no axis; expected a row for a sample"


def _spec_inside(model: ir.Model, path: Path) -> IoSpec:
    """The I/O spec in the file's metadata; empty where there is none."""
    if SPEC_KEY not in model.metadata_props:
        return IoSpec()
    try:
        spec = spec_inside(model)
    except StageError as error:
        raise StageError(error.code, f"model.checkpoint: {path}: {error}") from error
    named = names_of(spec.tensors)
    there = [str(value.name) for value in (*model.graph.inputs, *model.graph.outputs)]
    if sorted(named) != sorted(there):
        raise StageError(
            "wrong-spec",
            f"model.checkpoint: {path}: the I/O spec in its metadata is of another model: it names {', '.join(named)}, "
            f"and the file has {', '.join(there)}; take it out of the file, or write it anew",
        )
    return spec


def _runtime_class() -> type[torch.nn.Module]:
    """The class, made on first use so that importing this module does not import torch."""
    import torch

    class Runtime(torch.nn.Module):
        """Takes and returns tensors as the file does; a batch that the file fixes is filled up and cut again."""

        def __init__(self, path: Path, takes: list[str], gives: list[str], batch: int | None) -> None:
            from truehalf.runtime.ort import Session

            super().__init__()
            self._path = path
            self._session, self._takes, self._gives, self._batch = Session(path), takes, gives, batch

        def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
            feeds = {name: tensor.numpy() for name, tensor in zip(self._takes, inputs, strict=True)}
            rows = len(inputs[0])
            size = self._batch or rows
            parts = [self._part(feeds, start, size) for start in range(0, rows, size)]
            joined = [np.concatenate([part[name] for part in parts]) for name in self._gives]
            return tuple(torch.from_numpy(array[:rows] if self._batch else array) for array in joined)

        def _part(self, feeds: Mapping[str, np.ndarray], start: int, size: int) -> dict[str, np.ndarray]:
            last = len(next(iter(feeds.values()))) - 1
            rows = np.minimum(np.arange(start, start + size), last)
            found = self._session.run({name: np.ascontiguousarray(array[rows]) for name, array in feeds.items()})
            for name, array in found.items():
                if array.shape[:1] != (size,):
                    raise no_rows(self._path, name, array.shape, size)
            return found

    return Runtime
