"""From a torch module to an ONNX file, by either exporter of torch.

torchscript     torch.onnx.export(dynamo=False): opset up to 20; node names carry the module scope
dynamo          torch.export, then torch.onnx.export of the program: opset from 18; the scope is put into the names
                here. torch's optimizer leaves no sequences, which shape inference takes for equally large parts, and
                no casts to the same type. What detectors of `transformers` need:
                - aten._is_all_true (torch._check on values): ReduceMin(x as integers) as a boolean
                - len(tensor) fixes the axis at its traced length; while exporting it is tensor.shape[0]
                - torch_int(size), a function of transformers, fixes it, too; while exporting it passes sizes on
                Height and width that vary do so in steps (truehalf.models.sizes.step): strides divide images of such
                sides evenly, and torch.export would otherwise ask of each stride whether a rest is left
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import inspect
import io
import logging
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from truehalf.config.schema import Exporter, TraceConfig
from truehalf.errors import RAISED, StageError
from truehalf.exporting.after_export import (
    DynamicAxes,
    KeepConstants,
    NameAxes,
    NameByScope,
)
from truehalf.ir.passes import Passes
from truehalf.models.sizes import REMEDY, other_sides, step

if TYPE_CHECKING:
    import torch

_DYNAMO_OPSET_MIN = 18
_PICTURES = 4  # rank of a batch of images
# What torch.export says of an axis that does not vary as it should: by symbol, with its step.
_FIXED = re.compile(r"marked (?:\d+\*)?(\w+) as dynamic but your code specialized it to be a constant \((\d+)\)")
_GUARDED = re.compile(r"Not all values of (?:\d+\*)?(\w+) = .*? satisfy the generated guard (.+?)\.?$", re.MULTILINE)
_SIZE = re.compile(r"L\['\w+'\](?:\[\d+\])?\.size\(\)\[\d+\]")
_MISSING_OP = re.compile(r"OpOverload\(op='([\w.]+)', overload='(\w+)'\)|the operator '([\w:]+)'")


def export(
    module: torch.nn.Module,
    example_inputs: Sequence[torch.Tensor],
    path: Path | str,
    options: TraceConfig,
    *,
    input_names: Sequence[str],
    output_names: Sequence[str],
) -> None:
    """Write `module`, in eval mode and without gradients, as an ONNX file with the type of every value that ONNX can
    infer; the module is left as it was.

    Args:
        module: called with `example_inputs` by position. One that no output depends on is an input of the file, too.
        options: exporter, opset and dynamic axes; axes that it does not name are as in the example.

    Raises:
        StageError: when the exporter cannot do it (naming the operation without an ONNX translation), when it cannot
            write `opset`, or when an axis that should vary was fixed by the module's code.
    """
    write = _export_torchscript if options.exporter is Exporter.torchscript else _export_dynamo
    import onnx
    import torch

    with evaluation_mode(module), torch.no_grad(), _silent(), warnings.catch_warnings(action="ignore"):
        try:
            write(module, tuple(example_inputs), Path(path), list(input_names), list(output_names), options)
            onnx.shape_inference.infer_shapes_path(str(path), strict_mode=True, data_prop=True)
        except (StageError, OSError):
            raise
        except RAISED as error:  # the exporters raise what the module's code and torch's internals raise
            raise _explained(error, options) from error


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Within, torch.onnx logs errors alone, and nothing reaches standard output: of an export that fails torch prints
    the whole graph, from C++.
    """
    logger = logging.getLogger("torch.onnx")
    with contextlib.ExitStack() as stack:
        stack.callback(logger.setLevel, logger.level)
        logger.setLevel(logging.ERROR)
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        if sys.__stdout__ is not None:
            sys.__stdout__.flush()
            kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
            for opened in (kept, nowhere):
                stack.callback(os.close, opened)
            stack.callback(os.dup2, kept, 1)
            os.dup2(nowhere, 1)
        yield


@contextlib.contextmanager
def evaluation_mode(module: torch.nn.Module) -> Iterator[None]:
    """Put the module and all its parts in eval mode, without torch's fused kernel for nn.MultiheadAttention, which
    exporters do not translate; afterwards each is in the mode that it was in.
    """
    from torch.backends import mha

    modes, is_fused = [(part, part.training) for part in module.modules()], mha.get_fastpath_enabled()
    module.eval()
    mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        mha.set_fastpath_enabled(is_fused)
        for part, training in modes:
            part.training = training


def _export_torchscript(
    module: torch.nn.Module,
    inputs: tuple[torch.Tensor, ...],
    path: Path,
    input_names: list[str],
    output_names: list[str],
    options: TraceConfig,
) -> None:
    import torch

    for name in (*input_names, *output_names):
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
        input_names=input_names,
        output_names=output_names,
        dynamic_axes={name: dict(axes) for name, axes in options.dynamic_axes.items()},
    )
    _keep_inputs(path, inputs, input_names, options.dynamic_axes)


def _keep_inputs(
    path: Path, inputs: Sequence[torch.Tensor], input_names: Sequence[str], dynamic_axes: DynamicAxes
) -> None:
    """Put inputs that no output depends on back: the TorchScript exporter leaves them out."""
    model = ir.load(path)
    found = {value.name: value for value in model.graph.inputs}
    if set(found) >= set(input_names):
        return
    for name, tensor in zip(input_names, inputs, strict=True):
        axes = dynamic_axes.get(name, {})
        shape = ir.Shape([axes.get(axis, side) for axis, side in enumerate(tensor.shape)])
        dtype = ir.DataType.from_numpy(tensor.new_empty(0).cpu().numpy().dtype)
        found.setdefault(name, ir.Value(name=name, shape=shape, type=ir.TensorType(dtype)))
    model.graph.inputs[:] = [found[name] for name in input_names]
    ir.save(model, path)


def _export_dynamo(
    module: torch.nn.Module,
    inputs: tuple[torch.Tensor, ...],
    path: Path,
    input_names: list[str],
    output_names: list[str],
    options: TraceConfig,
) -> None:
    import torch

    opset, dynamic_axes = options.opset, options.dynamic_axes
    if opset < _DYNAMO_OPSET_MIN:
        raise StageError(
            "out-of-range",
            f"export: the dynamo exporter writes opset {_DYNAMO_OPSET_MIN} or later, got {opset}; "
            f"set trace.opset={_DYNAMO_OPSET_MIN} or trace.exporter=torchscript",
        )
    shapes = _dynamic_shapes(module, inputs, input_names, dynamic_axes)
    with _sizes_stay_symbols(module):
        try:
            program = torch.export.export(module, inputs, dynamic_shapes=shapes, strict=False)
        except torch._dynamo.exc.UserError as error:
            if reason := _fixed_axes(str(error), input_names, dynamic_axes):
                raise StageError("axis-fixed", f"export: {reason}; {REMEDY}") from error
            raise
    written = torch.onnx.export(
        program,
        dynamo=True,
        opset_version=opset,
        input_names=input_names,
        output_names=output_names,
        optimize=True,
        verbose=False,
        custom_translation_table={torch.ops.aten._is_all_true.default: _is_all_true},
    )
    assert written is not None
    Passes(KeepConstants(), NameByScope(), NameAxes(dynamic_axes))(written.model)
    ir.save(written.model, path)


def _dynamic_shapes(
    module: torch.nn.Module, inputs: Sequence[torch.Tensor], input_names: Sequence[str], dynamic_axes: DynamicAxes
) -> tuple[Any, ...]:
    """Axes of one symbol are one dimension; what forward(*inputs) takes is one tuple.

    The batch may be 1. A side of images varies in steps; where it has none, from the smaller of the sizes on at which
    it is checked, so that a stride leaves more than 1, of which torch.export would make another program; other axes
    from 2 on.
    """
    import torch

    def dimension(symbol: str, axis: int, tensor: torch.Tensor) -> Any:
        side, images = tensor.shape[axis], tensor.ndim == _PICTURES
        if axis and images and (stride := step(side)) > 1:
            return stride * torch.export.Dim(symbol, min=1)
        return torch.export.Dim(symbol, min=1 if axis == 0 else min(other_sides(side)[0] if images else 2, side))

    dimensions: dict[str, Any] = {}
    shapes = []
    for name, tensor in zip(input_names, inputs, strict=True):
        axes = dynamic_axes.get(name, {})
        for axis, symbol in axes.items():
            if symbol not in dimensions:
                dimensions[symbol] = dimension(symbol, axis, tensor)
        shapes.append({axis: dimensions[symbol] for axis, symbol in axes.items()})
    first = next(iter(inspect.signature(module.forward).parameters.values()))
    return (tuple(shapes),) if first.kind is inspect.Parameter.VAR_POSITIONAL else tuple(shapes)


def _fixed_axes(message: str, input_names: Sequence[str], dynamic_axes: DynamicAxes) -> str:
    """What torch.export says of axes that the module's code fixes, or takes some sizes of; empty where it is silent."""
    places = {
        symbol: f"axis {axis} of {name!r} ({symbol})"
        for name in reversed(input_names)
        for axis, symbol in dynamic_axes.get(name, {}).items()
    }
    fixed = {symbol: f"the module's code fixes it at {size}" for symbol, size in _FIXED.findall(message)}
    conditions = [(symbol, _SIZE.sub(symbol, condition)) for symbol, condition in _GUARDED.findall(message)]
    ends = {symbol: f" and {symbol} <= IntInfinity()" for symbol in places}
    guarded = {
        symbol: f"the module's code takes only sizes with {condition.removesuffix(ends.get(symbol, ''))}"
        for symbol, condition in conditions
    }
    found = {symbol: why for symbol, why in (guarded | fixed).items() if symbol in places}
    return ", ".join(f"{places[symbol]} cannot vary: {why}" for symbol, why in found.items())


def _is_all_true(self: Any) -> Any:
    import onnxscript

    op: Any = onnxscript.opset18
    int32, boolean = 6, 9
    return op.Cast(op.ReduceMin(op.Cast(self, to=int32), keepdims=0), to=boolean)


@contextlib.contextmanager
def _sizes_stay_symbols(module: torch.nn.Module) -> Iterator[None]:
    """In the source files of the module's parts (torch's excepted), len(tensor) is tensor.shape[0], and torch_int,
    where a file has it, leaves sizes that vary as they are.
    """
    import torch

    def length(value: Any) -> Any:
        return value.shape[0] if isinstance(value, torch.Tensor) else builtins.len(value)

    def whole(value: Any, otherwise: Callable[[Any], Any]) -> Any:
        symbolic = isinstance(value, torch.SymInt | torch.SymFloat)
        return torch.sym_int(value) if symbolic else otherwise(value)  # type: ignore[no-untyped-call]

    files = {type(part).__module__ for part in module.modules()}
    spaces = [vars(sys.modules[name]) for name in files if name in sys.modules and name.partition(".")[0] != "torch"]
    without_len = [space for space in spaces if "len" not in space]
    given = [(space, space["torch_int"]) for space in spaces if callable(space.get("torch_int"))]
    for space in without_len:
        space["len"] = length
    for space, function in given:
        space["torch_int"] = functools.partial(whole, otherwise=function)
    try:
        yield
    finally:
        for space in without_len:
            del space["len"]
        for space, function in given:
            space["torch_int"] = function


def _explained(error: BaseException, options: TraceConfig) -> StageError:
    """The operation that has no translation, else the first line of the last cause that has one."""
    exporter, opset = options.exporter.value, options.opset
    causes: list[BaseException] = [error]
    while (cause := causes[-1].__cause__) is not None:
        causes.append(cause)
    found = _MISSING_OP.search("\n".join(str(cause) for cause in causes))
    other = "dynamo" if exporter == "torchscript" else "torchscript"
    if found:
        operation = found[3] or f"{found[1]}.{found[2]}"
        return StageError(
            "not-supported",
            f"export: the {exporter} exporter has no ONNX translation of {operation} at opset {opset}; "
            f"try trace.exporter={other} or another trace.opset, or rewrite that operation in the module",
        )
    reason = next((str(cause).strip() for cause in reversed(causes) if str(cause).strip()), type(error).__name__)
    message = f"export: {exporter} failed at opset {opset}: {reason.splitlines()[0]}; try trace.exporter={other}"
    return StageError("export-fails", message)
