"""An FP32 ONNX file that is there already: trace checks it and passes it on, and it is the reference itself.

Inputs, outputs and the axes that vary are the file's; trace.exporter, trace.opset and trace.dynamic_axes are not used.
What its outputs mean is given by model.outputs, or by an I/O spec in the file's metadata (`truehalf.io_spec`), which
also says the inputs, the classes and whether the weights are trained, where model.* does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from truehalf.codes import coded
from truehalf.config.schema import Config, DataSource, Layout
from truehalf.config.typed import did_you_mean, plain
from truehalf.data.model_samples import shown_by
from truehalf.data.preprocessing import declared_by
from truehalf.errors import StageError
from truehalf.io_spec.in_file import SPEC_KEY, names_of, spec_inside
from truehalf.io_spec.inputs import channels_axis, input_spec, kind_beside_images
from truehalf.io_spec.spec import InputSpec, IoSpec, OutputSpec
from truehalf.models.declared import (
    declared_outputs,
    declared_preprocessing,
    images_input,
    not_taken,
    own_decoder,
    problems_of_declared,
    tensor_input,
)
from truehalf.models.model import Model

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
    yield from not_taken(config, "drop_outputs")
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
    from truehalf.ir.facts import fixed_batch
    from truehalf.ir.inlining import WeightsApart, said_of, weights_taken_out
    from truehalf.ir.model_file import load_model
    from truehalf.ir.normalize import InferTypes

    assert config.model.checkpoint is not None, "checked by problems"
    path = root / config.model.checkpoint
    model = load_model(path)
    WeightsApart()(model)
    InferTypes()(model)
    for code, problem in _problems_of(model):
        raise StageError(code, f"model.checkpoint: {path}: {problem}")
    spec = _spec_inside(model, path)
    inputs, batch = _inputs(config, model, spec), fixed_batch(model)
    taken = weights_taken_out(model)
    return Model(
        module=_runtime_class()(path, names_of(inputs), [str(value.name) for value in model.graph.outputs], batch),
        inputs=inputs,
        outputs=_outputs(config, model, spec, path),
        class_names=config.model.classes or spec.class_names,
        trained=config.model.options.trained and bool(spec.trained),
        file=path,
        axes=_axes(model),
        batch=batch,
        notes=[
            *([said_of(taken)] if taken else []),
            *([f"I/O spec: from the file's metadata ({SPEC_KEY})"] if spec.inputs else []),
        ],
    )


def _problems_of(model: ir.Model) -> Iterator[tuple[str, str]]:
    """Yield code and sentence for FP16 anywhere, ends of other floats than FP32, and inputs that runs cannot feed."""
    import onnx_ir as ir

    from truehalf.ir.facts import all_nodes
    from truehalf.ir.proto.one_image import IMAGE
    from truehalf.ir.proto.plugins import not_run

    ends = [*model.graph.inputs, *model.graph.outputs]
    weights = [value for graph in model.graphs() for value in graph.initializers.values()]
    computed = [value for node in all_nodes(model) for value in node.outputs]
    half_types = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
    if half := [value.name for value in (*ends, *weights, *computed) if value.dtype in half_types]:
        yield (
            "wrong-dtype",
            f"it is in half precision, in whole or in part: {len(half)} values, such as {half[0]!r}; expected the FP32 "
            "file that it was made from: FP16 is made here, and compared with FP32",
        )
    if line := not_run(model):
        yield "not-supported", f"{line}; `truehalf convert` takes it as it is, the pipeline without these nodes"
    if image := model.meta.get(IMAGE):
        alone = f"input {image!r} is one image, without an axis of images"
        yield "not-supported", f"{alone}; `truehalf convert` takes it as it is, the pipeline with that axis"
    if not model.graph.inputs:
        yield "wrong-file", "it has no inputs; expected a model that computes from its inputs"
    first = {value.shape[0] for value in model.graph.inputs if value.shape}
    if len(first) > 1 and any(isinstance(side, int) for side in first):
        listed = _listed({str(value.name): input_spec(value) for value in model.graph.inputs})
        yield "wrong-shape", f"expected the batch as the first axis of every input, got {listed}"
    for value in ends:
        if not isinstance(value.type, ir.TensorType) or value.shape is None:
            yield "wrong-file", f"{value.name!r} is no tensor of known type and rank; leave it out, or export it anew"
        elif value.dtype == ir.DataType.DOUBLE:
            yield "wrong-dtype", f"{value.name!r} is DOUBLE; expected FLOAT, which is FP32; export the model in FP32"
        elif value.is_graph_input() and not len(value.shape):
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


# --- inputs and outputs -----------------------------------------------------------------------------------------------


def _inputs(config: Config, model: ir.Model, spec: IoSpec) -> list[InputSpec]:
    """List the file's inputs: as declared, as the spec in the file says, or as `truehalf convert` takes them (images, a
    size and a mask beside them). Of arrays by input name nothing has to be known.
    """
    stated = {str(value.name): input_spec(value) for value in model.graph.inputs}
    of_images = [name for name, entry in stated.items() if channels_axis(entry.sides) is not None]
    if config.model.inputs is not None:
        declared = {each.name: each for each in config.model.inputs}
        if sorted(declared) != sorted(stated):
            like = "".join(did_you_mean(name, stated) for name in declared if name not in stated)
            message = f"model.inputs: expected the file's, {_listed(stated)}, got {', '.join(declared)}{like}"
            raise StageError("wrong-name", message)
        for name, entry in stated.items():
            if declared[name].dtype not in (None, entry.dtype):
                got = f"{name!r} is {entry.dtype} in the file, got {declared[name].dtype}"
                raise StageError("wrong-dtype", f"model.inputs: {got}; say dtype: {entry.dtype}")
        kinds = {name: each.kind.value for name, each in declared.items()}
    elif spec.inputs:
        kinds = {each.name: each.kind or ("images" if declared_by(each) else "tensor") for each in spec.inputs}
    elif config.data.source in (DataSource.npz, DataSource.function) and not _is_one_image(config, stated, of_images):
        kinds = dict.fromkeys(stated, "tensor")
    else:
        kinds = {name: kind_beside_images(entry) or "images" for name, entry in stated.items()}
        if [name for name, kind in kinds.items() if kind == "images"] != of_images[:1]:
            message = f"model.inputs: expected which of the file's inputs are images; it has {_listed(stated)}"
            raise StageError("needs-value", f"{message}; declare them: [{{name, kind, dtype, shape}}]")
    known = {} if config.model.inputs is not None else {each.name: each for each in spec.inputs}
    return [
        _images(value, known.get(entry.name), config)
        if kinds[entry.name] == "images"
        else tensor_input(entry.name, entry.dtype, _numbers(entry.sides[1:]), kinds[entry.name])
        for value, entry in zip(model.graph.inputs, stated.values(), strict=True)
    ]


def _is_one_image(config: Config, stated: Mapping[str, InputSpec], of_images: Sequence[str]) -> bool:
    """True if arrays feed one input of images; of an .npz file their size has to be known."""
    if len(stated) > 1 or not of_images:
        return False
    sizes = _numbers(next(iter(stated.values())).sides)
    is_sized = None not in config.model.image_size or None not in sizes[1:]
    return config.data.source is DataSource.function or is_sized


def _images(value: ir.Value, entry: InputSpec | None, config: Config) -> InputSpec:
    """An input of images, with the preprocessing that is declared, that the spec in the file has, or that it shows."""
    stated = input_spec(value)
    axis, found = channels_axis(stated.sides), _listed({stated.name: stated})
    if axis is None:
        raise StageError("wrong-shape", f"model.inputs: expected images, [N, 3, H, W] or [N, H, W, 3], got {found}")
    layout = Layout.nchw if axis == 1 else Layout.nhwc
    known = declared_by(entry) if entry is not None else None
    preprocessing = declared_preprocessing(config, known or replace(shown_by(value), layout=layout))
    wanted: list[int | None] = list(preprocessing.size or (None, None))
    fixed = _numbers(stated.sides[2:] if axis == 1 else stated.sides[1:3])
    size = [side or given for side, given in zip(fixed, wanted, strict=True)]
    if None in size:
        message = f"model.image_size: height or width of {stated.name!r} varies in the file; expected [height, width]"
        raise StageError("needs-value", message)
    if preprocessing.layout != layout or wanted not in ([None, None], size):
        message = f"model.preprocessing.layout, model.image_size: the file takes {found} {layout}, got "
        raise StageError("in-conflict", f"{message}{preprocessing.layout} {wanted}")
    inside = None
    if entry is not None and entry.normalization is not None and entry.is_normalized_inside:
        inside = {"mean": plain(entry.normalization.mean), "std": plain(entry.normalization.std)}
    resolved = replace(preprocessing, size=[side or 0 for side in size])
    return images_input(stated.name, resolved, stated.dtype, inside)


def _outputs(config: Config, model: ir.Model, spec: IoSpec, path: Path) -> list[OutputSpec]:
    """List the file's outputs, with the kinds that are declared, or that the spec in the file has."""
    names = [str(value.name) for value in model.graph.outputs]
    entries = spec.outputs if config.model.outputs is None else declared_outputs(config.model.outputs)
    known = {entry.name: entry for entry in entries}
    if unknown := [name for name in known if name not in names]:
        like = "".join(did_you_mean(name, names) for name in unknown)
        message = f"model.outputs: {path} has no {', '.join(unknown)}; it has {', '.join(names)}{like}"
        raise StageError("wrong-name", message)
    return [known.get(name, OutputSpec(name)) for name in names]


def _axes(model: ir.Model) -> dict[str, dict[int, str]]:
    """Name the axes that vary; the first one without a name is called as the first input's, or batch."""
    import onnx_ir as ir

    first = model.graph.inputs[0].shape
    leading = first[0] if first is not None else None
    batch = (leading.value if isinstance(leading, ir.SymbolicDim) else None) or "batch"
    found: dict[str, dict[int, str]] = {}
    for value in (*model.graph.inputs, *model.graph.outputs):
        found[str(value.name)] = {
            axis: side.value or (batch if axis == 0 else f"{value.name}_{axis}")
            for axis, side in enumerate(value.shape or ())
            if isinstance(side, ir.SymbolicDim)
        }
    return found


def _numbers(sides: Sequence[int | str]) -> list[int | None]:
    return [side if isinstance(side, int) else None for side in sides]


def _listed(entries: Mapping[str, InputSpec]) -> str:
    return ", ".join(f"{entry.name} {entry.dtype} [{', '.join(map(str, entry.sides))}]" for entry in entries.values())


# --- the module -------------------------------------------------------------------------------------------------------


def _runtime_class() -> type[torch.nn.Module]:
    """The class, made on first use so that importing this module does not import torch."""
    import torch

    class Runtime(torch.nn.Module):
        """Takes and returns tensors as the file does; a batch that the file fixes is filled up and cut again."""

        def __init__(self, path: Path, takes: list[str], gives: list[str], batch: int | None) -> None:
            from truehalf.runtime.ort import Session

            super().__init__()
            self._session, self._takes, self._gives, self._batch = Session(path), takes, gives, batch

        def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
            feeds = {name: tensor.numpy() for name, tensor in zip(self._takes, inputs, strict=True)}
            rows = len(inputs[0])
            size = self._batch or rows
            parts = [self._session.run(self._part(feeds, start, size)) for start in range(0, rows, size)]
            joined = [np.concatenate([np.atleast_1d(part[name]) for part in parts]) for name in self._gives]
            whole = size * len(parts)  # an output without a row for each sample stays as it is, and is refused by trace
            return tuple(torch.from_numpy(array[:rows] if len(array) == whole else array) for array in joined)

        def _part(self, feeds: Mapping[str, np.ndarray], start: int, size: int) -> dict[str, Any]:
            picked = np.minimum(np.arange(start, start + size), len(next(iter(feeds.values()))) - 1)
            return {name: np.ascontiguousarray(array[picked]) for name, array in feeds.items()}

    return Runtime
