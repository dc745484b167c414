"""TorchScript exporter of torch, with every input kept and no-op operators resolved."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from truehalf.errors import StageError
from truehalf.exporting.after_export import DynamicAxes

if TYPE_CHECKING:
    import torch

_RESOLVING = ("aten::resolve_conj", "aten::resolve_neg")
_RESOLVING_OPSET = 9  # the first that custom translations may be given for; it holds for later ones


def export_torchscript(
    module: torch.nn.Module,
    inputs: tuple[torch.Tensor, ...],
    path: Path,
    opset: int,
    input_names: list[str],
    output_names: list[str],
    dynamic_axes: DynamicAxes,
) -> None:
    import torch

    for name in (*input_names, *output_names):
        if re.fullmatch("[0-9]*", name):  # it takes them for names of its own values
            raise StageError(
                "bad-syntax",
                f"trace: the torchscript exporter takes no number for a name, got {name!r}; use trace.exporter=dynamo, "
                "or another name in model.inputs or model.outputs",
            )
    with _resolving_passes_on(opset):
        torch.onnx.export(
            module,
            inputs,
            str(path),
            dynamo=False,
            opset_version=opset,
            input_names=input_names,
            output_names=output_names,
            dynamic_axes={name: dict(axes) for name, axes in dynamic_axes.items()},
        )
    _keep_inputs(path, inputs, input_names, dynamic_axes)


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


@contextlib.contextmanager
def _resolving_passes_on(opset: int) -> Iterator[None]:
    """aten::resolve_conj(x) -> x, aten::resolve_neg(x) -> x: of a real tensor there is nothing to resolve.

    Only where nothing translates them (torch's own exporter does since 2.0, and the caller may have registered a
    translation), and only while exporting.
    """
    import torch

    missing = [name for name in _RESOLVING if not _is_translated(name, opset)]
    for name in missing:
        torch.onnx.register_custom_op_symbolic(name, lambda g, x: x, _RESOLVING_OPSET)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for name in missing:
            torch.onnx.unregister_custom_op_symbolic(name, _RESOLVING_OPSET)  # type: ignore[attr-defined]


def _is_translated(name: str, opset: int) -> bool:
    """Whether the TorchScript exporter has a translation of a torch operation; True where that cannot be asked."""
    try:
        from torch.onnx._internal.torchscript_exporter.registration import registry
    except ImportError:  # torch before 2.9 keeps it elsewhere
        return True
    group = registry.get_function_group(name)
    return group is not None and group.get(opset) is not None
