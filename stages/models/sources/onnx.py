"""An FP32 ONNX file that is there already: trace checks it and passes it on, and it is the reference itself.

Its inputs, outputs and the axes that vary are its own; trace.exporter, trace.opset and trace.dynamic_axes are not used,
and trace's notes say so where they are set.
What its outputs mean is said by model.outputs, or by an I/O spec in the file's metadata (`truehalf.io_spec`), which
also says the inputs, the classes and whether the weights are trained, where model.* does not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from conf.codes import coded
from conf.schema import CONF, Config, DataSource
from stages.data.preprocessing import Preprocessing, declared_by
from stages.io import StageError
from stages.models.common_faults import own_decoder
from stages.models.declared import declared_outputs, declared_preprocessing, faults_of_declared
from stages.models.model import Input, Model, Output
from stages.onnx_files import SPEC_KEY

if TYPE_CHECKING:
    import onnx_ir as ir
    import torch

_NOT_SAID = "model.inputs: expected which of the file's inputs are pictures"


@dataclass(frozen=True)
class Options:
    """See model/onnx.yaml.

    Attributes:
        trained: whether there are weights to trust.
    """

    trained: bool


def faults(config: Config) -> list[str]:
    """What is wrong with `model.*` beyond types."""
    return [*_faults_of_keys(config), *faults_of_declared(config)]


def _faults_of_keys(config: Config) -> Iterator[str]:
    model = config.model
    yield from own_decoder(config, "file")
    if model.checkpoint is None:
        yield coded(
            "needs-value", "model.checkpoint: model=onnx needs an FP32 ONNX file: model.checkpoint=/path/to/model.onnx"
        )
    if model.drop_outputs:
        yield coded(
            "in-conflict",
            f"model.drop_outputs: the file is passed on with all its outputs; expected [], got {model.drop_outputs}",
        )
    for i, each in enumerate(model.outputs or ()):
        if each.take is not None:
            yield coded(
                "in-conflict",
                f"model.outputs[{i}].take: outputs of a file are known by name; expected null, got {each.take!r}",
            )


def files(config: Config, root: Path) -> list[Path]:
    """The file, and those that its weights are in."""
    from stages.onnx_files import external_files, load_model

    if config.model.checkpoint is None:
        return []
    path = root / config.model.checkpoint
    outside = external_files(load_model(path)) if path.is_file() else []
    return [path, *(path.parent / name for name in outside)]


def open_model(config: Config, root: Path) -> Model:
    """The file, behind a torch module that runs it in ONNX Runtime.

    Raises:
        StageError: when the file cannot be read or run, is FP16 in part, has inputs that nobody says the kind of, or
            has not what model.* declares.
    """
    from stages.graph.normalize import infer_types
    from stages.graph.opset import list_weights_apart
    from stages.onnx_files import load_model

    assert config.model.checkpoint is not None, "checked by faults"
    path = root / config.model.checkpoint
    model = load_model(path)
    list_weights_apart(model)
    infer_types(model)
    _check_fp32(model, path)
    spec = _spec_inside(model, path)
    inputs = _inputs(config, model, spec)
    outputs = _outputs(config, model, spec, path)
    batch = _fixed_batch(model, path)
    return Model(
        module=_runtime_class()(path, [each.name for each in inputs], [each.name for each in outputs], batch),
        inputs=inputs,
        outputs=outputs,
        class_names=config.model.classes or list(spec.get("class_names") or ()),
        trained=config.model.options.trained and bool(spec.get("trained", True)),
        file=path,
        axes=_axes(model),
        batch=batch,
        notes=[*([f"I/O spec: from the file's metadata ({SPEC_KEY})"] if spec else []), *_of_no_use(config)],
    )


def _of_no_use(config: Config) -> Iterator[str]:
    """Keys of tracing that were set, though nothing is traced. No error: one command line may serve several models."""
    defaults = yaml.safe_load((CONF / "config.yaml").read_text())["trace"]
    given = {
        "exporter": config.trace.exporter.value,
        "opset": config.trace.opset,
        "dynamic_axes": config.trace.dynamic_axes,
    }
    for key, value in given.items():
        if value != defaults[key]:
            yield f"trace.{key}: {value} is not used; the file is passed on as it is, with its own"


def _check_fp32(model: ir.Model, path: Path) -> None:
    """Refuse FP16 anywhere, and other floats than FP32 at the ends."""
    import onnx_ir as ir

    halves = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
    weights = [
        value
        for graph in model.graphs()
        for value in graph.initializers.values()
        if value.const_value is not None and value.const_value.dtype in halves
    ]
    nodes = [
        node
        for graph in [model.graph, *(function.graph for function in model.functions.values())]
        for node in ir.traversal.RecursiveGraphIterator(graph)
        if any(value.dtype in halves for value in node.outputs)
    ]
    ends = [value for value in (*model.graph.inputs, *model.graph.outputs) if value.dtype in halves]
    if weights or nodes or ends:
        first = [f"{value.name!r}" for value in (*ends, *weights)] + [f"node {node.name!r}" for node in nodes]
        raise StageError(
            "wrong-dtype",
            f"model.checkpoint: {path} is in half precision, in whole or in part: {len(weights)} weights, {len(nodes)} "
            f"nodes, {len(ends)} inputs and outputs, such as {first[0]}; expected the FP32 file that it was made "
            "from: FP16 is made here, and held against FP32",
        )
    for value in (*model.graph.inputs, *model.graph.outputs):
        if value.dtype is None or value.shape is None:
            raise StageError(
                "wrong-file",
                f"model.checkpoint: {path}: {value.name!r} has no type or no shape; export the model anew",
            )
        if value.dtype.is_floating_point() and value.dtype != ir.DataType.FLOAT:
            raise StageError(
                "wrong-dtype",
                f"model.checkpoint: {path}: {value.name!r} is {value.dtype.name}; expected floats at the ends to be "
                "FLOAT, which is FP32; export the model in FP32",
            )
    for value in model.graph.inputs:
        if value.const_value is not None:
            raise StageError(
                "wrong-file",
                f"model.checkpoint: {path}: input {value.name!r} has a value in the file, too, which runs may replace; "
                "expected inputs without; export the model without keeping initializers as inputs",
            )
        if not len(value.shape or ()):
            raise StageError(
                "wrong-shape",
                f"model.checkpoint: {path}: input {value.name!r} has no axis; expected a row for a sample",
            )


def _spec_inside(model: ir.Model, path: Path) -> dict[str, Any]:
    """The I/O spec in the file's metadata; empty where there is none."""
    text = model.metadata_props.get(SPEC_KEY)
    if text is None:
        return {}
    try:
        spec = json.loads(text)
        named = [entry["name"] for kind in ("inputs", "outputs") for entry in spec[kind]]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise StageError(
            "wrong-spec",
            f"model.checkpoint: {path}: metadata {SPEC_KEY!r} is no I/O spec ({type(error).__name__}: {error}); "
            "take it out of the file, or write it anew",
        ) from error
    there = [str(value.name) for value in (*model.graph.inputs, *model.graph.outputs)]
    if sorted(named) != sorted(there):
        raise StageError(
            "wrong-spec",
            f"model.checkpoint: {path}: the I/O spec in its metadata is of another model: it names {', '.join(named)}, "
            f"and the file has {', '.join(there)}; take it out of the file, or write it anew",
        )
    return dict(spec)


def _inputs(config: Config, model: ir.Model, spec: Mapping[str, Any]) -> list[Input]:
    """In the file's order: as declared, as the spec in the file says, or one of pictures. Of any others nothing has to
    be known where the data is arrays by input name.
    """
    values = {str(value.name): value for value in model.graph.inputs}
    if config.model.inputs is not None:
        declared = {each.name: each for each in config.model.inputs}
        if sorted(declared) != sorted(values):
            raise StageError(
                "wrong-name",
                f"model.inputs: expected the file's, {_listed(values.values())}, got {', '.join(declared)}",
            )
        for name, entry in declared.items():
            if entry.dtype != _dtype(values[name]):
                raise StageError(
                    "wrong-dtype", f"model.inputs: {name!r} is {_dtype(values[name])} in the file, got {entry.dtype}"
                )
        kinds = {name: entry.kind.value for name, entry in declared.items()}
        return [_input(value, kinds[name], None, config) for name, value in values.items()]
    if spec:
        entries = {entry["name"]: entry for entry in spec["inputs"]}
        return [_input(value, entries[name].get("kind"), entries[name], config) for name, value in values.items()]
    ((_, value), *others) = values.items()
    if config.data.source is DataSource.npz and (others or not _is_sized_picture(value, config)):
        return [_input(value, "tensor", None, config) for value in values.values()]
    if config.data.source is DataSource.function and (others or _channels_at(value) is None):
        return [_input(value, "tensor", None, config) for value in values.values()]
    if others or _channels_at(value) is None:
        raise StageError(
            "needs-value",
            f"{_NOT_SAID}; it has {_listed(values.values())}; declare them: [{{name, kind, dtype, shape}}]",
        )
    return [_input(value, "images", None, config)]


def _is_sized_picture(value: ir.Value, config: Config) -> bool:
    at = _channels_at(value)
    if at is None:
        return False
    sides = _sides(value)[2:] if at == 1 else _sides(value)[1:3]
    return None not in [side or wanted for side, wanted in zip(sides, config.model.image_size, strict=True)]


def _input(value: ir.Value, kind: str | None, entry: Mapping[str, Any] | None, config: Config) -> Input:
    name, sides = str(value.name), _sides(value)
    known = declared_by(entry) if entry is not None else None
    if kind is None:
        kind = "tensor" if known is None else "images"
    if kind != "images":
        if kind == "picture_size" and sides[1:] not in ([2], [None]):
            raise StageError(
                "wrong-shape", f"model.inputs: {name!r} has {_listed([value])}; expected [N, 2], height and width"
            )
        return Input(name, kind, _dtype(value), tuple(sides[1:]))
    at = _channels_at(value)
    if at is None:
        raise StageError(
            "wrong-shape", f"model.inputs: expected pictures, [N, 3, H, W] or [N, H, W, 3], got {_listed([value])}"
        )
    layout = "NCHW" if at == 1 else "NHWC"
    preprocessing = declared_preprocessing(config, known or Preprocessing(layout=layout))
    if preprocessing.layout != layout:
        raise StageError(
            "in-conflict", f"model.preprocessing.layout: the file takes {_listed([value])}, got {preprocessing.layout}"
        )
    preprocessing = replace(preprocessing, size=_size(name, sides[2:] if at == 1 else sides[1:3], preprocessing.size))
    normalization = (entry or {}).get("normalization") or {}
    inside = normalization.get("where") == "inside the graph"
    normalized = {key: normalization[key] for key in ("mean", "std")} if inside else None
    return Input(name, kind, _dtype(value), None, preprocessing, normalized)


def _size(name: str, sides: Sequence[int | None], wanted: Sequence[int] | None) -> list[int]:
    """Height and width: those that the file fixes, else those that are wanted."""
    size = [side or (wanted or (None, None))[position] for position, side in enumerate(sides)]
    known = [side for side in size if side is not None]
    if len(known) < 2:
        raise StageError(
            "needs-value", f"model.image_size: height or width of {name!r} varies in the file; expected [height, width]"
        )
    if wanted is not None and list(wanted) != known:
        raise StageError(
            "in-conflict",
            f"model.image_size: the file fixes {name!r} at {known}, got {list(wanted)}; set it to {known}",
        )
    return known


def _outputs(config: Config, model: ir.Model, spec: Mapping[str, Any], path: Path) -> list[Output]:
    """In the file's order: those that are declared, or that the spec in the file has, with their kinds."""
    names = [str(value.name) for value in model.graph.outputs]
    if config.model.outputs is not None:
        known = {each.name: each for each in declared_outputs(config.model.outputs)}
        if unknown := [name for name in known if name not in names]:
            raise StageError(
                "wrong-name", f"model.outputs: {path} has no {', '.join(unknown)}; it has {', '.join(names)}"
            )
        return [known.get(name, Output(name)) for name in names]
    said = {entry["name"]: entry for entry in spec.get("outputs", ())}
    keys = ("activation", "format", "normalized", "no_object")
    return [
        Output(name, said[name].get("kind"), {key: said[name][key] for key in keys if key in said[name]})
        if name in said
        else Output(name)
        for name in names
    ]


def _axes(model: ir.Model) -> dict[str, dict[int, str]]:
    """Names of the axes that vary; the first one without a name is called as the first input's, or batch."""
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


def _fixed_batch(model: ir.Model, path: Path) -> int | None:
    """The number of samples that the inputs are fixed to."""
    fixed = {str(value.name): side for value in model.graph.inputs if (side := _sides(value)[0]) is not None}
    if len(set(fixed.values())) > 1 or (fixed and len(fixed) < len(model.graph.inputs)):
        raise StageError(
            "wrong-shape",
            f"model.checkpoint: {path}: expected the batch as the first axis of every input, got "
            f"{_listed(model.graph.inputs)}",
        )
    return next(iter(fixed.values()), None)


def _sides(value: ir.Value) -> list[int | None]:
    return [side if isinstance(side, int) else None for side in value.shape or ()]


def _channels_at(value: ir.Value) -> int | None:
    """Where the three channels of pictures are: axis 1 or 3; None: these are no pictures."""
    sides = _sides(value)
    return next((axis for axis in (1, 3) if len(sides) == 4 and sides[axis] == 3), None)


def _dtype(value: ir.Value) -> str:
    assert value.dtype is not None, "checked"
    return str(value.dtype.numpy())


def _listed(values: Any) -> str:
    shown = (f"{value.name} {_dtype(value)} [{', '.join(str(side) for side in value.shape or ())}]" for value in values)
    return ", ".join(shown)


def _runtime_class() -> type[torch.nn.Module]:
    """The class, made on first use so that importing this module does not import torch."""
    import torch

    class Runtime(torch.nn.Module):
        """Takes and returns tensors as the file does; a batch that the file fixes is filled up and cut again."""

        def __init__(self, path: Path, takes: list[str], gives: list[str], batch: int | None) -> None:
            from stages.ort.session import Session

            super().__init__()
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
            return self._session.run({name: np.ascontiguousarray(array[rows]) for name, array in feeds.items()})

    return Runtime
