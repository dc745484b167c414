"""An FP32 ONNX file that is there already: trace checks it and passes it on, and it is the reference itself.

Inputs, outputs and the axes that vary are the file's; trace.exporter, trace.opset and trace.dynamic_axes are not used,
and trace's notes say so where they are set.
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
from truehalf.config.schema import Config, DataSource, Layout, TraceConfig
from truehalf.config.typed import did_you_mean, plain
from truehalf.data.model_samples import shown_by
from truehalf.data.preprocessing import declared_by
from truehalf.errors import StageError
from truehalf.io_spec.in_file import SPEC_KEY, names_of, spec_inside
from truehalf.io_spec.inputs import channels_axis, input_spec, kind_beside_images
from truehalf.io_spec.spec import InputSpec, IoSpec, OutputSpec
from truehalf.models.common_problems import own_decoder
from truehalf.models.declared import declared_outputs, declared_preprocessing, problems_of_declared
from truehalf.models.model import Input, Model

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
    for code, problem in _problems_of(model):
        raise StageError(code, f"model.checkpoint: {path}: {problem}")
    spec = _spec_inside(model, path)
    inputs = _inputs(config, model, spec)
    outputs = _outputs(config, model, spec, path)
    batch = _batch(model, path)
    return Model(
        module=_runtime_class()(path, [each.name for each in inputs], [each.name for each in outputs], batch),
        inputs=inputs,
        outputs=outputs,
        class_names=config.model.classes or spec.class_names,
        trained=config.model.options.trained and bool(spec.trained),
        file=path,
        axes=_axes(model),
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


def _problems_of(model: ir.Model) -> Iterator[tuple[str, str]]:
    """Yield code and sentence for FP16 anywhere, ends of other floats than FP32, and inputs that runs cannot feed."""
    import onnx_ir as ir

    from truehalf.ir.facts import all_nodes
    from truehalf.ir.proto.one_image import IMAGE
    from truehalf.ir.proto.plugins import not_run

    def in_half(values: Any) -> list[str]:
        half_types = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
        return [repr(value.name) for value in values if value.dtype in half_types]

    ends = in_half([*model.graph.inputs, *model.graph.outputs])
    weights = in_half([value for graph in model.graphs() for value in graph.initializers.values()])
    nodes = [f"node {node.name!r}" for node in all_nodes(model, functions=True) if in_half(node.outputs)]
    if first := [*ends, *weights, *nodes][:1]:
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


def _inputs(config: Config, model: ir.Model, spec: IoSpec) -> list[Input]:
    """List the file's inputs: as declared, as the spec in the file says, or as `truehalf convert` takes them (images, a
    size and a mask beside them). Of arrays by input name nothing has to be known.
    """
    values = {str(value.name): value for value in model.graph.inputs}
    stated = list(map(input_spec, model.graph.inputs))
    at = {entry.name: channels_axis(_sides(values[entry.name])) for entry in stated}
    known = {entry.name: entry for entry in spec.inputs}
    if config.model.inputs is not None:
        declared = {each.name: each for each in config.model.inputs}
        if sorted(declared) != sorted(values):
            like = "".join(did_you_mean(name, values) for name in declared if name not in values)
            message = f"model.inputs: expected the file's, {_listed(values.values())}, got {', '.join(declared)}{like}"
            raise StageError("wrong-name", message)
        for entry in stated:
            if declared[entry.name].dtype != entry.dtype:
                got = f"{entry.name!r} is {entry.dtype} in the file, got {declared[entry.name].dtype}"
                raise StageError("wrong-dtype", f"model.inputs: {got}; say dtype: {entry.dtype}")
        known, kinds = {}, {name: each.kind.value for name, each in declared.items()}
    elif known:
        kinds = {
            name: entry.kind or ("tensor" if declared_by(entry) is None else "images") for name, entry in known.items()
        }
    elif config.data.source in (DataSource.npz, DataSource.function) and not _is_one_image(config, stated, at):
        kinds = dict.fromkeys(values, "tensor")
    else:
        kinds = {entry.name: kind_beside_images(entry) or "images" for entry in stated}
        if [at[name] is not None for name, kind in kinds.items() if kind == "images"] != [True]:
            listed = _listed(values.values())
            message = f"model.inputs: expected which of the file's inputs are images; it has {listed}; declare them: "
            raise StageError("needs-value", message + "[{name, kind, dtype, shape}]")
    return [_input(value, kinds[name], known.get(name), config) for name, value in values.items()]


def _is_one_image(config: Config, stated: Sequence[InputSpec], at: Mapping[str, int | None]) -> bool:
    """True if arrays feed one input of images; of an .npz file their size has to be known."""
    if len(stated) > 1 or (axis := at[stated[0].name]) is None:
        return False
    sides = stated[0].sides[2:] if axis == 1 else stated[0].sides[1:3]
    sized = [isinstance(side, int) or wanted for side, wanted in zip(sides, config.model.image_size, strict=True)]
    return config.data.source is DataSource.function or all(sized)


def _input(value: ir.Value, kind: str, entry: InputSpec | None, config: Config) -> Input:
    name, sides, dtype = str(value.name), _sides(value), input_spec(value).dtype
    at = channels_axis(sides)
    expected = {"images": "images, [N, 3, H, W] or [N, H, W, 3]", "picture_size": "[N, 2], height and width"}
    if (kind == "picture_size" and sides[1:] not in ([2], [None])) or (kind == "images" and at is None):
        raise StageError("wrong-shape", f"model.inputs: expected {expected[kind]}, got {_listed([value])}")
    if kind != "images":
        return Input(name, kind, dtype, tuple(sides[1:]))
    layout = Layout.nchw if at == 1 else Layout.nhwc
    known = declared_by(entry) if entry is not None else None
    preprocessing = declared_preprocessing(config, known or replace(shown_by(value), layout=layout))
    if preprocessing.layout != layout:
        message = f"model.preprocessing.layout: the file takes {_listed([value])}, got {preprocessing.layout}"
        raise StageError("in-conflict", message)
    wanted = preprocessing.size
    fixed = sides[2:] if at == 1 else sides[1:3]
    size = [side or (wanted or (None, None))[position] for position, side in enumerate(fixed)]
    if None in size:
        message = f"model.image_size: height or width of {name!r} varies in the file; expected [height, width]"
        raise StageError("needs-value", message)
    if wanted is not None and list(wanted) != size:
        message = f"model.image_size: the file fixes {name!r} at {size}, got {list(wanted)}; set it to {size}"
        raise StageError("in-conflict", message)
    declared = entry.normalization if entry is not None else None
    inside = None if declared is None or not declared.inside else declared
    normalized = None if inside is None else {"mean": plain(inside.mean), "std": plain(inside.std)}
    return Input(name, kind, dtype, None, replace(preprocessing, size=[side or 0 for side in size]), normalized)


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


def _batch(model: ir.Model, path: Path) -> int | None:
    """Find the number of samples that the inputs are fixed to.

    Raises:
        StageError: where inputs differ in it, or an output has another number of rows.
    """
    fixed = {str(value.name): side for value in model.graph.inputs if (side := _sides(value)[0]) is not None}
    if len(set(fixed.values())) > 1 or (fixed and len(fixed) < len(model.graph.inputs)):
        raise StageError(
            "wrong-shape",
            f"model.checkpoint: {path}: expected the batch as the first axis of every input, got "
            f"{_listed(model.graph.inputs)}",
        )
    batch = next(iter(fixed.values()), None)
    for value in model.graph.outputs:
        first = (_sides(value) or [0])[0]
        if value.shape is not None and first is not None and first != batch:
            raise _no_rows(path, str(value.name), list(value.shape), batch)
    return batch


def _no_rows(path: Path, name: str, shape: Sequence[Any], samples: int | None) -> StageError:
    """Make the error for an output whose first axis is not the samples'."""
    wanted = "samples" if samples is None else f"{samples} samples"
    return StageError(
        "wrong-shape",
        f"model.checkpoint: {path}: output {name!r} is [{', '.join(str(side) for side in shape)}]; expected {wanted} "
        "on its first axis; take it out of the file's outputs, or export the model with the samples there",
    )


def _sides(value: ir.Value) -> list[int | None]:
    return [side if isinstance(side, int) else None for side in value.shape or ()]


def _listed(values: Any) -> str:
    entries = ((input_spec(value), value.shape or ()) for value in values)
    return ", ".join(f"{entry.name} {entry.dtype} [{', '.join(map(str, shape))}]" for entry, shape in entries)


# --- the module -------------------------------------------------------------------------------------------------------


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
                    raise _no_rows(self._path, name, array.shape, size)
            return found

    return Runtime
