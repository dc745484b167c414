"""From a torch module to an ONNX file, by either exporter of torch.

torchscript     torch.onnx.export(dynamo=False): opset up to 20; node names carry the module scope. aten::resolve_conj
                and aten::resolve_neg pass their input on where the exporter has no translation of its own
dynamo          torch.export, then torch.onnx.export of the program: opset from 18; the scope is put into the names
                here; not optimised, that is a later step. What detectors of `transformers` need:
                - aten._is_all_true (torch._check on values): ReduceMin(x as integers) as a boolean
                - len(tensor) fixes the axis at its traced length; while exporting it is tensor.shape[0]
                - torch_int(size), a function of transformers, fixes it, too; while exporting it passes sizes on
                - SequenceAt(SplitToSequence(x, sizes), i) -> Split(x, sizes)[i], because shape inference takes all
                  elements of a sequence for equally large, and TensorRT has no sequences
                - CastLike(x, y) -> x where both have one type
                Height and width that vary do so in steps (truehalf.models.sizes.step): strides divide pictures of such
                sides evenly, and torch.export would otherwise ask of each stride whether a rest is left
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import inspect
import io
import logging
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from truehalf.errors import StageError
from truehalf.models.sizes import REMEDY, other_sides, step

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir
    import torch

EXPORTERS = ("torchscript", "dynamo")
_DYNAMO_OPSET_MIN = 18
_RESOLVING = ("aten::resolve_conj", "aten::resolve_neg")
_RESOLVING_OPSET = 9  # the first that custom translations may be given for; it holds for later ones
_SCOPES = "pkg.torch.onnx.name_scopes"  # metadata of a node: its modules, outermost first, then the torch operation
_NO_SCOPE = "_empty_nn_module_stack"  # what torch.export calls the scope of nodes that it added itself
_PICTURES = 4  # rank of a batch of pictures
# What torch.export says of an axis that does not vary as it should: by symbol, with its step.
_FIXED = re.compile(r"marked (?:\d+\*)?(\w+) as dynamic but your code specialized it to be a constant \((\d+)\)")
_GUARDED = re.compile(r"Not all values of (?:\d+\*)?(\w+) = .*? satisfy the generated guard (.+?)\.?$", re.MULTILINE)
_SIZE = re.compile(r"L\['\w+'\](?:\[\d+\])?\.size\(\)\[\d+\]")
_MISSING_OP = re.compile(r"OpOverload\(op='([\w.]+)', overload='(\w+)'\)|the operator '([\w:]+)'")
DynamicAxes = Mapping[str, Mapping[int, str]]


def export(
    module: torch.nn.Module,
    example_inputs: Sequence[torch.Tensor],
    path: Path | str,
    *,
    exporter: str,
    opset: int,
    input_names: Sequence[str],
    output_names: Sequence[str],
    dynamic_axes: DynamicAxes,
) -> list[warnings.WarningMessage]:
    """Write `module`, in eval mode and without gradients, as an ONNX file with the type of every value that ONNX can
    infer; the module is left as it was.

    Args:
        module: called with `example_inputs` by position. One that no output depends on is an input of the file, too.
        exporter: "torchscript" or "dynamo".
        dynamic_axes: by input or output name, {axis: symbol}; all other axes are as in the example.

    Returns:
        what the exporter warned of, with file and line.

    Raises:
        StageError: when the exporter cannot do it (naming the operation without an ONNX translation), when it cannot
            write `opset`, or when an axis that should vary was fixed by the module's code.
    """
    if exporter not in EXPORTERS:
        raise StageError("unknown-choice", f"export: expected exporter {' or '.join(EXPORTERS)}, got {exporter!r}")
    write = _export_torchscript if exporter == "torchscript" else _export_dynamo
    import onnx
    import torch

    with evaluation_mode(module), torch.no_grad(), _quiet() as caught:
        try:
            write(module, tuple(example_inputs), Path(path), opset, list(input_names), list(output_names), dynamic_axes)
            onnx.shape_inference.infer_shapes_path(str(path), strict_mode=True, data_prop=True)
            if exporter == "dynamo":
                _drop_casts_to_own_type(Path(path))
        except (StageError, OSError):
            raise
        except Exception as error:  # the exporters raise what the module's code and torch's internals raise
            raise _explained(error, exporter, opset) from error
    return list(caught)


@contextlib.contextmanager
def evaluation_mode(module: torch.nn.Module) -> Iterator[None]:
    """Put the module and all its parts in eval mode; afterwards each is in the mode that it was in."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training


def _export_torchscript(
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


def _export_dynamo(
    module: torch.nn.Module,
    inputs: tuple[torch.Tensor, ...],
    path: Path,
    opset: int,
    input_names: list[str],
    output_names: list[str],
    dynamic_axes: DynamicAxes,
) -> None:
    import onnx_ir as ir
    import torch

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
            if said := _fixed_axes(str(error), input_names, dynamic_axes):
                raise StageError("axis-fixed", f"export: {said}; {REMEDY}") from error
            raise
    written = torch.onnx.export(
        program,
        dynamo=True,
        opset_version=opset,
        input_names=input_names,
        output_names=output_names,
        optimize=False,
        verbose=False,
        custom_translation_table={torch.ops.aten._is_all_true.default: _is_all_true},
    )
    assert written is not None
    _split_without_sequences(written.model)
    _name_by_scope(written.model)
    _name_axes(written.model, dynamic_axes)
    ir.save(written.model, path)


def _dynamic_shapes(
    module: torch.nn.Module,
    inputs: Sequence[torch.Tensor],
    input_names: Sequence[str],
    dynamic_axes: DynamicAxes,
) -> tuple[Any, ...]:
    """Axes of one symbol are one dimension; what forward(*inputs) takes is one tuple.

    The batch may be 1. A side of pictures varies in steps; where it has none, from the smaller of the sizes on at which
    it is checked, so that a stride leaves more than 1, of which torch.export would make another program; other axes
    from 2 on.
    """
    import torch

    def dimension(symbol: str, axis: int, tensor: torch.Tensor) -> Any:
        side, pictures = tensor.shape[axis], tensor.ndim == _PICTURES
        if axis and pictures and (stride := step(side)) > 1:
            return stride * torch.export.Dim(symbol, min=1)
        return torch.export.Dim(symbol, min=1 if axis == 0 else min(other_sides(side)[0] if pictures else 2, side))

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


def _fixed_axes(said: str, input_names: Sequence[str], dynamic_axes: DynamicAxes) -> str:
    """What torch.export says of axes that the module's code fixes, or takes some sizes of; empty where it is silent."""
    places = {
        symbol: f"axis {axis} of {name!r} ({symbol})"
        for name in reversed(input_names)
        for axis, symbol in dynamic_axes.get(name, {}).items()
    }
    fixed = {symbol: f"the module's code fixes it at {size}" for symbol, size in _FIXED.findall(said)}
    guards = [(symbol, _SIZE.sub(symbol, guard)) for symbol, guard in _GUARDED.findall(said)]
    ends = {symbol: f" and {symbol} <= IntInfinity()" for symbol in places}
    guarded = {
        symbol: f"the module's code takes sizes alone with {guard.removesuffix(ends.get(symbol, ''))}"
        for symbol, guard in guards
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
    """In the source files of the module's parts (torch's own excepted), len(tensor) is tensor.shape[0], and torch_int,
    where a file has it, leaves sizes that vary as they are.
    """
    import torch

    def length(value: Any) -> Any:
        return value.shape[0] if isinstance(value, torch.Tensor) else builtins.len(value)

    def whole(value: Any, otherwise: Callable[[Any], Any]) -> Any:
        symbolic = isinstance(value, torch.SymInt | torch.SymFloat)
        return torch.sym_int(value) if symbolic else otherwise(value)  # type: ignore[no-untyped-call]

    files = {type(part).__module__ for part in module.modules()}
    spaces = [vars(sys.modules[name]) for name in files if name.partition(".")[0] != "torch"]
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


def _split_without_sequences(model: ir.Model) -> None:
    """SequenceAt(SplitToSequence(x, sizes), i) -> Split(x, sizes)[i], where i and the number of sizes are known."""
    import onnx_ir as ir

    graph = model.graph
    for split in [node for node in graph if node.op_type == "SplitToSequence" and len(node.inputs) == 2]:
        sizes = _part_sizes(split)
        picks = [use.node for use in split.outputs[0].uses()]
        indices = [_constant(pick.inputs[1]) for pick in picks if pick.op_type == "SequenceAt"]
        known = [index for index in indices if index is not None]
        if sizes is None or len(known) < len(picks):
            continue
        lengths, count = sizes
        axis = {"axis": split.attributes.get_int("axis", 0)}
        parts = ir.node("Split", [split.inputs[0], lengths], axis, num_outputs=count)
        made = [node for node in (lengths.producer(), parts) if node is not None and node.graph is None]
        for node in made:
            node.metadata_props.update(split.metadata_props)
        graph.insert_before(split, made)
        for pick, index in zip(picks, known, strict=True):
            ir.convenience.replace_all_uses_with(pick.outputs[0], parts.outputs[int(index)])
        graph.remove(picks, safe=True)
        graph.remove(split, safe=True)


def _part_sizes(split: ir.Node) -> tuple[ir.Value, int] | None:
    """Lengths of the parts and how many there are: as given, or, given one length, as many as fit and the rest; None
    where not known.
    """
    import onnx_ir as ir

    x, given = split.inputs
    part = _constant(given)
    if given is not None and (part is None or part.ndim == 1):
        count = _elements(given)
        return None if count is None else (given, count)
    length = None if x is None or x.shape is None else x.shape[split.attributes.get_int("axis", 0)]
    if part is None or not isinstance(length, int):
        return None
    whole, rest = divmod(length, int(part))
    sizes = [int(part)] * whole + [rest] * bool(rest)
    return ir.node("Constant", [], {"value": ir.tensor(sizes, ir.DataType.INT64)}).outputs[0], len(sizes)


def _elements(sizes: ir.Value) -> int | None:
    """How many sizes there are in a constant, or in a Concat of scalars, as the exporter writes sizes that vary."""
    constant, made_by = _constant(sizes), sizes.producer()
    if constant is not None:
        return constant.size
    if made_by is not None and made_by.op_type == "Concat":
        counts = [_elements(value) for value in made_by.inputs if value is not None]
        return None if None in counts else sum(count for count in counts if count is not None)
    scalar = made_by.inputs[0] if made_by is not None and made_by.op_type == "Reshape" else None
    return 1 if scalar is not None and scalar.shape is not None and len(scalar.shape) == 0 else None


def _constant(value: ir.Value | None) -> np.ndarray | None:
    import onnx_ir as ir

    tensor = None if value is None else ir.convenience.get_const_tensor(value)
    return None if tensor is None else tensor.numpy()


def _drop_casts_to_own_type(path: Path) -> None:
    """CastLike(x, y) -> x where x and y have one type: the exporter writes them where torch promotes."""
    import onnx_ir as ir

    model = ir.load(path)
    ends = set(model.graph.outputs)
    for node in [node for node in model.graph if node.op_type == "CastLike"]:
        x, like = node.inputs
        if x is None or like is None or x.dtype is None or x.dtype != like.dtype or node.outputs[0] in ends:
            continue
        ir.convenience.replace_all_uses_with(node.outputs[0], x)
        model.graph.remove(node, safe=True)
    ir.save(model, path)


def _name_by_scope(model: ir.Model) -> None:
    """Name nodes and their outputs as TorchScript does: /outer/inner/OpType, then _1, _2, ..., and <node>_output_0.

    The exporter's own names may be given twice (an initializer `mean` beside a node's output `mean`), and its notes on
    nodes hold stack traces with paths of this machine.
    """
    import ast

    seen: Counter[str] = Counter()
    for node in model.graph.all_nodes():
        scopes = ast.literal_eval(node.metadata_props.get(_SCOPES, "[]"))[:-1]
        scopes = [scope for scope in scopes if not scope.startswith(_NO_SCOPE)]
        parts = [inner.removeprefix(f"{outer}.") for outer, inner in zip(["", *scopes], scopes, strict=False) if inner]
        name = "/".join(["", *parts, node.op_type])
        node.name = f"{name}_{seen[name]}" if seen[name] else name
        seen[name] += 1
        node.metadata_props.clear()
        for index, value in enumerate(node.outputs):
            if not value.is_graph_output():
                value.name = f"{node.name}_output_{index}"


def _name_axes(model: ir.Model, dynamic_axes: DynamicAxes) -> None:
    """Give axes that vary their declared symbols; what lies between is left to shape inference."""
    import onnx_ir as ir

    ends = {value.name: value for value in (*model.graph.inputs, *model.graph.outputs)}
    for node in model.graph.all_nodes():
        for value in node.outputs:
            if value.name not in ends:
                value.type = value.shape = None
    for name, axes in dynamic_axes.items():
        shape = ends[name].shape
        assert shape is not None
        sizes = list(shape)
        for axis, symbol in axes.items():
            if isinstance(sizes[axis], int):
                raise StageError(
                    "axis-fixed",
                    f"export: axis {axis} of {name!r} should vary ({symbol}), and the module's code fixes it at "
                    f"{sizes[axis]}; use tensor.shape in the module, or take the axis out of trace.dynamic_axes",
                )
            sizes[axis] = ir.SymbolicDim(symbol)
        ends[name].shape = ir.Shape(sizes)


@contextlib.contextmanager
def _quiet() -> Iterator[list[warnings.WarningMessage]]:
    """Keep the exporters' prints and log lines away; warnings are collected."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("always")
            yield caught
    finally:
        logger.setLevel(level)


def _explained(error: Exception, exporter: str, opset: int) -> StageError:
    """The operation that has no translation, else the first line of the last cause that has one."""
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
    said = next((str(cause).strip() for cause in reversed(causes) if str(cause).strip()), type(error).__name__)
    return StageError(
        "export-fails",
        f"export: the {exporter} exporter failed at opset {opset}: {said.splitlines()[0]}; try trace.exporter={other}",
    )
