"""FP16 by tracing: the module in half precision, or under torch.autocast, as an ONNX file, slimmed.

half        parameters and buffers in float16, inputs cast to float16 where they come in
autocast    parameters and inputs in float32; torch's list for the device says which operations cast to float16

The work is done on a deep copy. On CUDA where there is one, else on the CPU; where CUDA cannot, on the CPU, too, and
the report says why. The copy is run before it is exported: dynamo looks only at shapes and types. Nothing here judges
the result; what verifies the file has the last word.
"""

from __future__ import annotations

import copy
import linecache
import tempfile
import traceback
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from truehalf.config.precision import Method, Precision
from truehalf.config.schema import Config, SlimConfig, TraceConfig
from truehalf.conversion.report import LISTED_NODES, Decision, Fp16Report, entry, fp32_rows
from truehalf.errors import RAISED, StageError, failing, first_line
from truehalf.exporting.export import evaluation_mode, export
from truehalf.exporting.half_norms import SettleNorms
from truehalf.files import check_outputs, destination
from truehalf.io_spec.in_file import attach, check_names, names_of
from truehalf.io_spec.spec import IoSpec
from truehalf.ir.model_file import PRECISION_KEY, load_model, save_model
from truehalf.models.own_code import shown_file
from truehalf.models.source import dynamic_axes_of, open_model, samples_to_trace
from truehalf.runtime.machine import device_lock
from truehalf.slimming.slim import slim

if TYPE_CHECKING:
    import numpy as np
    import torch

    from truehalf.models.model import Model

Arrays = Mapping[str, "np.ndarray"]
# What calls the module here is no place in the user's code.
_OURS = ("truehalf.exporting.half", "truehalf.exporting.export", "truehalf.models.calling")


@dataclass(frozen=True)
class HalfTracing:
    """How a module is traced in FP16 and slimmed.

    Attributes:
        precision: method (half or autocast), the float32 inputs and outputs that stay so, and the opset to raise the
            file to.
        trace: exporter, opset and dynamic axes of the export.
        slim: patterns of onnxslim to leave out.
        repair: passes of truehalf.patterns.PASSES; None: all.
    """

    precision: Precision
    trace: TraceConfig
    slim: SlimConfig = field(default_factory=SlimConfig)
    repair: Sequence[str] | None = None


def half_configured(
    config: Config, root: Path, out_path: Path, spec: IoSpec, shapes: Mapping[str, Sequence[int]]
) -> tuple[Fp16Report, list[Decision]]:
    """Trace the module of a configuration in FP16.

    Args:
        root: its workspace.
        spec: the I/O spec of the FP32 file.
        shapes: by graph input, the shape at which arithmetic is counted.

    Raises:
        StageError: as trace_in_fp16.
    """
    model = open_model(config, root)
    traced = replace(config.trace, dynamic_axes=dynamic_axes_of(config, model))
    options = HalfTracing(config.precision, traced, config.slim, config.repair.passes)
    example = samples_to_trace(model, config, root)[2]
    return trace_in_fp16(model, example, out_path, options, spec=spec, input_shapes=shapes)


def trace_in_fp16(
    model: Model,
    example: Arrays,
    out_path: Path | str,
    options: HalfTracing,
    *,
    spec: IoSpec,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
) -> tuple[Fp16Report, list[Decision]]:
    """Trace a module in FP16 and slim what comes of it; the module is left as it was.

    Args:
        model: from truehalf.models.source.open_model, FP32 on the CPU.
        example: real inputs to trace on, by name, with their batch axis.
        out_path: of the slimmed ONNX file; replaced only when all went well.
        spec: the I/O spec of the FP32 trace; names, order and shapes are those of the file.
        input_shapes: by graph input, the shape at which arithmetic is counted; other varying sides count 1.

    Returns:
        A report (parity of its slim is not judged), and the row of each float node for decisions.json.

    Raises:
        StageError: where the module does not run in FP16, with the place in its code and what to do; where there is no
            module, where the exporter cannot do it, or where the file cannot be loaded.
    """
    precision, method = options.precision, options.precision.method
    if model.file is not None:
        message = f"precision.method: {method.value} needs a module; for {model.file.name}: precision.method=convert"
        raise StageError("in-conflict", message)
    check_outputs({"out_path": out_path}, {})
    out_path = destination(Path(out_path))
    out_path.parent.mkdir(parents=True, exist_ok=True)
    types = _border_types(spec, precision.keep_io_types)
    with tempfile.TemporaryDirectory(dir=out_path.parent, prefix=".fp16") as folder:
        traced = Path(folder) / "traced.onnx"
        device, notes = _traced(model, example, traced, options, types, spec)
        try:
            stamp = f"fp16 by truehalf, method {method.value} on {device}"
            facts = _described(traced, spec, types, stamp, precision.opset)
            slimmed = slim(traced, out_path, options.slim, repair=options.repair)
        except StageError as error:
            message = "; ".join([f"what was traced is no usable file: {error.text}", *notes])
            message = f"precision.method={method.value}: {message}; set precision.method=convert"
            raise StageError(error.code, message) from error
    rows, report = _counted(out_path, method.value, input_shapes)
    reason = "float16 outputs are not compared as float32 ones are; verify compares the file with the FP32 model"
    parity = {"status": slimmed.parity["status"], "reason": reason}
    report = replace(
        report,
        method=method.value,
        device=device,
        exporter=options.trace.exporter.value,
        norms=facts[1],
        slim={**slimmed.to_json(), "parity": parity},
        warnings=[*notes, *facts[0]],
    )
    return report, rows


# --- tracing ----------------------------------------------------------------------------------------------------------


def _border_types(spec: IoSpec, keep: bool | Collection[str]) -> dict[str, str]:
    """The dtype of each input and output of the file, as numpy calls it."""
    entries = {entry.name: entry.dtype for entry in spec.tensors}
    if unknown := [name for name in (keep if not isinstance(keep, bool) else ()) if name not in entries]:
        message = f"precision.keep_io_types: no tensor {', '.join(unknown)}; the model has {', '.join(entries)}"
        raise StageError("wrong-name", message)
    kept = set(entries if keep is True else () if keep is False else keep)
    return {name: "float16" if dtype == "float32" and name not in kept else dtype for name, dtype in entries.items()}


def _traced(
    model: Model, example: Arrays, path: Path, options: HalfTracing, types: Mapping[str, str], spec: IoSpec
) -> tuple[str, list[str]]:
    """Write the file; the device on which it was traced, and notes for the report."""
    import numpy as np
    import torch

    inputs, outputs = names_of(spec.inputs), names_of(spec.outputs)
    method = options.precision.method

    def on(device: str) -> None:
        with model.prepared():
            module = _copied(model.module).to(device)
            if method is Method.half:
                module.half()
            inner = torch.float16 if method is Method.half else torch.float32
            _cast_at_borders(module, inner, [types[name] for name in outputs])
            feed = [
                torch.from_numpy(np.ascontiguousarray(example[name])).to(device, getattr(torch, types[name]))
                for name in inputs
            ]
            try:
                # weights are cast at each use, as a cached cast is no part of the graph
                with torch.autocast(device, torch.float16, enabled=method is not Method.half, cache_enabled=False):
                    with evaluation_mode(module), torch.no_grad():
                        module(*feed)  # dynamo writes files of modules that do not run in FP16
                    export(module, feed, path, options.trace, input_names=inputs, output_names=outputs)
            except RAISED as error:  # what the module's code, torch's kernels and the exporters raise
                raise StageError("half-trace-fails", _explained(error, method, device)) from error

    if torch.cuda.is_available():
        try:
            with device_lock():
                on("cuda")
                return "cuda", []
        except (StageError, RuntimeError) as error:  # torch's: out of memory, no kernel for this GPU
            on("cpu")
            return "cpu", [f"tracing on CUDA failed, so the CPU did it: {first_line(error)}"]
    on("cpu")
    return "cpu", []


def _copied(module: torch.nn.Module) -> torch.nn.Module:
    remedy = "; give its tensors as parameters, buffers or detached, or set precision.method=convert"
    with failing("half-trace-fails", "fp16: the module is not changed in place, and cannot be copied", remedy):
        return copy.deepcopy(module)


def _cast_at_borders(module: torch.nn.Module, inner: torch.dtype, outer: Sequence[str]) -> None:
    """Inputs to `inner` before anything else, outputs to what the file shall have after everything else.

    By hooks: a module around this one would change the names of all nodes.
    """
    import torch

    ours = (torch.float16, torch.bfloat16, torch.float32)

    def on_the_way_in(_: torch.nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(arg.to(inner) if isinstance(arg, torch.Tensor) and arg.dtype in ours else arg for arg in args)

    def on_the_way_out(_: torch.nn.Module, args: tuple[Any, ...], returned: Any) -> Any:
        values = [returned] if isinstance(returned, torch.Tensor) else list(returned)
        cast = tuple(
            value.to(getattr(torch, dtype)) if value.dtype in ours else value
            for value, dtype in zip(values, outer, strict=True)
        )
        return cast[0] if isinstance(returned, torch.Tensor) else cast

    module.register_forward_pre_hook(on_the_way_in, prepend=True)
    module.register_forward_hook(on_the_way_out)


def _explained(error: BaseException, method: Method, device: str) -> str:
    """What failed, where in the module's code, and what to do."""
    cause = error.__cause__ if isinstance(error, StageError) and error.__cause__ is not None else error
    others = "autocast or convert" if method is Method.half else "convert"
    return (
        f"precision.method={method.value} on {device.upper()}: {_place(cause)}{first_line(cause)}; give tensors that "
        f"are made there the type of their partner (dtype=x.dtype), or set precision.method={others}"
    )


def _place(error: BaseException) -> str:
    """`file:line: code: ` of the innermost frame in the module's code; empty where there is none."""
    found: tuple[FrameType, int] | None = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        name = str(frame.f_globals.get("__name__", ""))
        if name.partition(".")[0] not in ("torch", "onnx", "onnxscript", "onnx_ir", "contextlib") and name not in _OURS:
            found = frame, line
    if found is None:
        return ""
    frame, line = found
    file = frame.f_code.co_filename
    code = linecache.getline(file, line, frame.f_globals).strip()
    return f"{shown_file(file)}:{line}: {code + ': ' if code else ''}"


# --- the file ---------------------------------------------------------------------------------------------------------


def _described(
    path: Path, spec: IoSpec, types: Mapping[str, str], stamp: str, opset: int | None
) -> tuple[list[str], dict[str, int]]:
    """Give the file shapes and types of the spec, and the spec itself; return notes on raising it, and norms."""
    from truehalf.ir.opset import ToOpset

    model = load_model(path)
    notes = ToOpset(opset)(model).notes()
    norms = SettleNorms()(model).counts
    inputs = tuple(replace(each, dtype=types[each.name]) for each in spec.inputs)
    outputs = tuple(replace(each, dtype=types[each.name]) for each in spec.outputs)
    check_names(model, spec)
    attach(model, replace(spec, inputs=inputs, outputs=outputs), {})
    model.metadata_props[PRECISION_KEY] = stamp
    save_model(model, path)
    return notes, norms


def _counted(
    path: Path, method: str, input_shapes: Mapping[str, Sequence[int]] | None
) -> tuple[list[Decision], Fp16Report]:
    """Make a row for each float node of the file, and count them for the report."""
    import onnx_ir as ir

    from truehalf.conversion.rules import base
    from truehalf.ir.arithmetic import flops
    from truehalf.ir.facts import FLOATS, all_nodes, model_facts
    from truehalf.ir.normalize import concrete_shapes

    model = load_model(path)
    shapes = concrete_shapes(model, input_shapes)
    rows: list[Decision] = []
    casts: Counter[tuple[ir.DataType | None, ir.DataType | None]] = Counter()
    arithmetic = {"fp16": 0.0, "fp32": 0.0}
    for node in all_nodes(model):
        if node.op_type == "Cast" and node.inputs[0] is not None:
            casts[node.inputs[0].dtype, node.outputs[0].dtype] += 1
        types = {output.dtype for output in node.outputs if output.name and output.dtype in FLOATS}
        if not types or node.op_type in ("Cast", "Constant"):
            continue
        precision = "fp16" if types == {ir.DataType.FLOAT16} else "fp32"
        arithmetic[precision] += flops(node, shapes)
        reason = f"{'float16' if precision == 'fp16' else 'float32'} as traced and slimmed"
        rows.append(entry(node, precision, base.Decision(base.Verdict[precision], method, reason)))
    total = sum(arithmetic.values())
    facts = model_facts(model, path)
    kept = fp32_rows(rows)
    return rows, Fp16Report(
        fp32_nodes_total=len(kept),
        fp32_nodes=kept[:LISTED_NODES],
        fp16_fraction=facts["fp16_fraction"],
        fp16_arithmetic=arithmetic["fp16"] / total if total else None,
        casts_to_fp16=casts[ir.DataType.FLOAT, ir.DataType.FLOAT16],
        casts_to_fp32=casts[ir.DataType.FLOAT16, ir.DataType.FLOAT],
        model=facts,
    )
