"""The inputs, outputs and varying axes of an ONNX file, as a configuration, the I/O spec in it, or its shapes say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from truehalf.config.schema import Config, DataSource, Layout
from truehalf.config.typed import did_you_mean, plain
from truehalf.data.model_samples import shown_by
from truehalf.data.preprocessing import declared_by
from truehalf.errors import StageError
from truehalf.io_spec.inputs import channels_axis
from truehalf.io_spec.spec import InputSpec, IoSpec, OutputSpec
from truehalf.models.declared import declared_outputs, declared_preprocessing
from truehalf.models.model import Input

if TYPE_CHECKING:
    import onnx_ir as ir

_NOT_SAID = "model.inputs: expected which of the file's inputs are images"


def inputs_of(config: Config, model: ir.Model, spec: IoSpec) -> list[Input]:
    """In the file's order: as declared, as the spec in the file says, or one of images. Of any others nothing has to
    be known where the data is arrays by input name.
    """
    values = {str(value.name): value for value in model.graph.inputs}
    if config.model.inputs is not None:
        declared = {each.name: each for each in config.model.inputs}
        if sorted(declared) != sorted(values):
            like = "".join(did_you_mean(name, values) for name in declared if name not in values)
            message = f"model.inputs: expected the file's, {_listed(values.values())}, got {', '.join(declared)}{like}"
            raise StageError("wrong-name", message)
        for name, entry in declared.items():
            if entry.dtype != (its_own := _dtype(values[name])):
                message = f"model.inputs: {name!r} is {its_own} in the file, got {entry.dtype}; say dtype: {its_own}"
                raise StageError("wrong-dtype", message)
        kinds = {name: entry.kind.value for name, entry in declared.items()}
        return [_input(value, kinds[name], None, config) for name, value in values.items()]
    if spec.inputs:
        entries = {entry.name: entry for entry in spec.inputs}
        return [_input(value, entries[name].kind, entries[name], config) for name, value in values.items()]
    value, *others = values.values()
    if config.data.source is DataSource.npz and (others or not _is_sized_image(value, config)):
        return [_input(value, "tensor", None, config) for value in values.values()]
    if config.data.source is DataSource.function and (others or channels_axis(_sides(value)) is None):
        return [_input(value, "tensor", None, config) for value in values.values()]
    if others or channels_axis(_sides(value)) is None:
        message = f"{_NOT_SAID}; it has {_listed(values.values())}; declare them: [{{name, kind, dtype, shape}}]"
        raise StageError("needs-value", message)
    return [_input(value, "images", None, config)]


def _is_sized_image(value: ir.Value, config: Config) -> bool:
    at = channels_axis(_sides(value))
    if at is None:
        return False
    sides = _sides(value)[2:] if at == 1 else _sides(value)[1:3]
    return None not in [side or wanted for side, wanted in zip(sides, config.model.image_size, strict=True)]


def _input(value: ir.Value, kind: str | None, entry: InputSpec | None, config: Config) -> Input:
    name, sides = str(value.name), _sides(value)
    known = declared_by(entry) if entry is not None else None
    if kind is None:
        kind = "tensor" if known is None else "images"
    if kind != "images":
        if kind == "picture_size" and sides[1:] not in ([2], [None]):
            message = f"model.inputs: {name!r} has {_listed([value])}; expected [N, 2], height and width"
            raise StageError("wrong-shape", message)
        return Input(name, kind, _dtype(value), tuple(sides[1:]))
    at = channels_axis(_sides(value))
    if at is None:
        message = f"model.inputs: expected images, [N, 3, H, W] or [N, H, W, 3], got {_listed([value])}"
        raise StageError("wrong-shape", message)
    layout = Layout.nchw if at == 1 else Layout.nhwc
    preprocessing = declared_preprocessing(config, known or replace(shown_by(value), layout=layout))
    if preprocessing.layout != layout:
        message = f"model.preprocessing.layout: the file takes {_listed([value])}, got {preprocessing.layout}"
        raise StageError("in-conflict", message)
    preprocessing = replace(preprocessing, size=_size(name, sides[2:] if at == 1 else sides[1:3], preprocessing.size))
    declared = entry.normalization if entry is not None else None
    is_inside = declared is not None and declared.inside
    normalized = {key: plain(getattr(declared, key)) for key in ("mean", "std")} if is_inside else None
    return Input(name, kind, _dtype(value), None, preprocessing, normalized)


def _size(name: str, sides: Sequence[int | None], wanted: Sequence[int] | None) -> list[int]:
    """Height and width: those that the file fixes, else those that are wanted."""
    size = [side or (wanted or (None, None))[position] for position, side in enumerate(sides)]
    known = [side for side in size if side is not None]
    if len(known) < 2:
        message = f"model.image_size: height or width of {name!r} varies in the file; expected [height, width]"
        raise StageError("needs-value", message)
    if wanted is not None and list(wanted) != known:
        message = f"model.image_size: the file fixes {name!r} at {known}, got {list(wanted)}; set it to {known}"
        raise StageError("in-conflict", message)
    return known


def outputs_of(config: Config, model: ir.Model, spec: IoSpec, path: Path) -> list[OutputSpec]:
    """In the file's order: those that are declared, or that the spec in the file has, with their kinds."""
    names = [str(value.name) for value in model.graph.outputs]
    if config.model.outputs is not None:
        known = {each.name: each for each in declared_outputs(config.model.outputs)}
        if unknown := [name for name in known if name not in names]:
            like = "".join(did_you_mean(name, names) for name in unknown)
            message = f"model.outputs: {path} has no {', '.join(unknown)}; it has {', '.join(names)}{like}"
            raise StageError("wrong-name", message)
        return [known.get(name, OutputSpec(name)) for name in names]
    declared = {entry.name: entry for entry in spec.outputs}
    return [declared.get(name, OutputSpec(name)) for name in names]


def axes_of(model: ir.Model) -> dict[str, dict[int, str]]:
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


def batch_of(model: ir.Model, path: Path) -> int | None:
    """The number of samples that the inputs are fixed to.

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
            raise no_rows(path, str(value.name), list(value.shape), batch)
    return batch


def no_rows(path: Path, name: str, shape: Sequence[Any], samples: int | None) -> StageError:
    """An output whose first axis is not the samples', so that it is unknown which values are of which sample."""
    wanted = "samples" if samples is None else f"{samples} samples"
    return StageError(
        "wrong-shape",
        f"model.checkpoint: {path}: output {name!r} is [{', '.join(str(side) for side in shape)}]; expected {wanted} "
        "on its first axis; take it out of the file's outputs, or export the model with the samples there",
    )


def _sides(value: ir.Value) -> list[int | None]:
    return [side if isinstance(side, int) else None for side in value.shape or ()]


def _dtype(value: ir.Value) -> str:
    assert value.dtype is not None, "checked"
    return str(value.dtype.numpy())


def _listed(values: Any) -> str:
    shown = (f"{value.name} {_dtype(value)} [{', '.join(str(side) for side in value.shape or ())}]" for value in values)
    return ", ".join(shown)
