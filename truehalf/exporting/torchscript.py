"""TorchScript exporter of torch, with every input kept."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from truehalf.config.schema import TraceConfig
from truehalf.errors import StageError
from truehalf.exporting.after_export import DynamicAxes

if TYPE_CHECKING:
    import torch


class Names(NamedTuple):
    """Of a file's inputs and outputs."""

    inputs: list[str]
    outputs: list[str]


def export_torchscript(
    module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], path: Path, names: Names, options: TraceConfig
) -> None:
    import torch

    for name in (*names.inputs, *names.outputs):
        if re.fullmatch("[0-9]*", name):  # it takes them for names of its values
            raise StageError(
                "bad-syntax",
                f"trace: the torchscript exporter takes no number for a name, got {name!r}; use trace.exporter=dynamo, "
                "or another name in model.inputs or model.outputs",
            )
    torch.onnx.export(
        module,
        inputs,
        str(path),
        dynamo=False,
        opset_version=options.opset,
        input_names=names.inputs,
        output_names=names.outputs,
        dynamic_axes={name: dict(axes) for name, axes in options.dynamic_axes.items()},
    )
    _keep_inputs(path, inputs, names.inputs, options.dynamic_axes)


def _keep_inputs(
    path: Path, inputs: Sequence[torch.Tensor], input_names: Sequence[str], dynamic_axes: DynamicAxes
) -> None:
    """Put inputs that no output depends on back: the TorchScript exporter leaves them out."""
    import onnx

    model = onnx.load(path, load_external_data=False)
    found = {value.name: value for value in model.graph.input}
    if set(found) >= set(input_names):
        return
    for name, tensor in zip(input_names, inputs, strict=True):
        axes = dynamic_axes.get(name, {})
        dtype = onnx.helper.np_dtype_to_tensor_dtype(tensor.new_empty(0).cpu().numpy().dtype)
        shape = [axes.get(axis, side) for axis, side in enumerate(tensor.shape)]
        found.setdefault(name, onnx.helper.make_tensor_value_info(name, dtype, shape))
    del model.graph.input[:]
    model.graph.input.extend(found[name] for name in input_names)
    onnx.save(model, path)
