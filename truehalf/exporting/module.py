"""Export of a torch module that comes with arrays, without a configuration."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from truehalf.codes import coded
from truehalf.config.schema import TraceConfig
from truehalf.errors import StageError, failing
from truehalf.exporting.trace import Arrays, Tracing, trace
from truehalf.exporting.trace_report import TraceReport
from truehalf.io_spec.spec import OutputSpec
from truehalf.models.calling import (
    all_taken,
    as_network,
    as_tensors,
    calling,
    no_tensors,
    parameters_of,
    returned_by,
    taken,
)
from truehalf.models.declared import tensor_input
from truehalf.models.model import Model
from truehalf.models.source import io_spec
from truehalf.user_code import found_in_code, imported
from truehalf.verification.findings import NOT_VERIFIED
from truehalf.verification.metrics.tensors import Parity

if TYPE_CHECKING:
    import torch


def made(factory: str, root: Path) -> torch.nn.Module:
    """The module that "module:function" returns, or that it is, on the CPU, in FP32 and eval mode.

    Raises:
        StageError: when it cannot be imported, raises, or is no module.
    """
    import torch

    network = found_in_code("export", factory, root)
    if not isinstance(network, torch.nn.Module):
        with failing("function-fails", f"export: {factory} fails"):
            network = imported("export", factory, root)()
    return as_network(network, f"export: {factory}")


def export_module(
    network: torch.nn.Module,
    out_path: Path,
    samples: Sequence[Arrays],
    *,
    outputs: Sequence[str] | None = None,
    dynamic_axes: Mapping[str, Mapping[int, str]] | None = None,
    options: TraceConfig | None = None,
) -> TraceReport:
    """Write a module as FP32 ONNX and compare the file with it.

    Args:
        network: in eval mode; left as it was.
        out_path: of the ONNX file; io_spec.json is written beside it.
        samples: arrays by input name, batch axis included; the module is traced on the first, compared on all.
        outputs: names, in the order in which the module returns its tensors; None: its keys, or output_0, ...
        dynamic_axes: {input or output: {axis: symbol}}; None: the first axis of every input varies.
        options: exporter, opset and tolerance.

    Raises:
        StageError: no sample, a module that fails on one, names that do not fit; as truehalf.exporting.trace.trace.
    """
    import torch

    options = options or TraceConfig()
    if not isinstance(network, torch.nn.Module):
        raise StageError("wrong-type", f"export: module: expected a torch.nn.Module, got {reprlib.repr(network)}")
    if not samples:
        raise StageError("too-few-samples", "export: expected at least one sample to trace on, got none")
    for sample in samples:
        if not isinstance(sample, Mapping) or not all(isinstance(array, np.ndarray) for array in sample.values()):
            expected = "export: samples: expected arrays of numpy by input name, or several such mappings"
            raise StageError("wrong-type", f"{expected}, got {reprlib.repr(sample)}")
    arrays = {name: samples[0][name] for name in _in_order(network, samples[0])}
    inputs = [tensor_input(name, str(array.dtype), array.shape[1:]) for name, array in arrays.items()]
    remedy = "; expected the inputs that forward takes: give samples that hold each by its name, of sizes that it takes"
    returned = returned_by(network, arrays, "export", remedy)
    found = all_taken(returned)
    names = list(found) if outputs is None else list(outputs)
    if len(names) != len(found):
        listed = ", ".join(found)
        message = f"export: the module returns {len(found)} tensors ({listed}), and {len(names)} names were given"
        raise StageError("wrong-name", message)
    takes = list(found.values())
    model = Model(calling(network, takes), inputs, [OutputSpec(name) for name in names], [], True)
    axes = {each.name: {0: "batch"} for each in inputs} if dynamic_axes is None else dynamic_axes
    spec = io_spec(model, as_tensors(samples[0], list(arrays)), taken(returned, takes), axes)
    report = trace(model.module, samples[0], out_path, Tracing(options, axes), spec=spec, check_feeds=samples)
    if left_out := no_tensors(returned):
        report = replace(report, notes=[left_out, *report.notes])
    if (same := _of_one_size(axes, samples)) and report.parity["status"] != NOT_VERIFIED:
        reason = f"{same}, and all samples are of one size there; give samples of others, or fix it (dynamic_axes)"
        parity: Parity = {**report.parity, "status": NOT_VERIFIED, "reason": coded("trace-open", reason)}
        return replace(report, parity=parity)
    return report


def _of_one_size(axes: Mapping[str, Mapping[int, str]], samples: Sequence[Arrays]) -> str:
    """The axes of inputs that vary, that of the samples excepted, and have one size in all samples."""
    found = [
        f"axis {axis} of {name!r} varies"
        for name in samples[0]
        for axis in axes.get(name, {})
        if axis and len({sample[name].shape[axis] for sample in samples}) == 1
    ]
    return ", ".join(found)


def _in_order(network: torch.nn.Module, sample: Arrays) -> list[str]:
    """Names of the inputs in the order in which forward takes them."""
    taken = parameters_of(network)
    if len(sample) > 1 and not set(sample) <= set(taken):
        given = ", ".join(sample)
        message = f"export: samples hold {given}, forward takes {', '.join(taken) or 'unknown names'}; name them alike"
        raise StageError("wrong-name", message)
    return [name for name in taken if name in sample] if len(sample) > 1 else list(sample)
