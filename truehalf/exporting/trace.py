"""A torch module, or an ONNX file that is there already, as an FP32 ONNX file with its I/O spec.

A module is exported with stable names and known value types, and compared with the file by the rule of
truehalf.verification.metrics.tensors; what the trace has fixed is looked for on inputs that differ
(truehalf.exporting.decisions). A file is checked and written anew.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from truehalf.config.schema import Exporter, LintConfig, TraceConfig
from truehalf.errors import StageError, attempted
from truehalf.exporting.after_export import DynamicAxes
from truehalf.exporting.against_torch import (
    check_unread,
    compared_with_torch,
    counted,
    tensors_of,
    torch_outputs,
    unread_in,
)
from truehalf.exporting.decisions import Subject, explaining, places_of, what_was_baked
from truehalf.exporting.export import export
from truehalf.exporting.reads import Read, reading, reads
from truehalf.exporting.trace_report import TraceReport
from truehalf.exporting.variations import doubled
from truehalf.files import check_outputs, destination, write_text, written_whole
from truehalf.io_spec.in_file import attach, check_declared, check_names, named_axes, names_of, spec_text
from truehalf.io_spec.spec import IoSpec
from truehalf.ir.facts import model_facts
from truehalf.ir.inlining import WeightsApart
from truehalf.ir.model_file import load_model, save_model, source_weights
from truehalf.ir.normalize import InferTypes
from truehalf.models.as_made import State, aside, copied
from truehalf.models.calling import network_of
from truehalf.models.sizes import varying_axes
from truehalf.patterns import RULES
from truehalf.patterns.ignoring import parse_ignores
from truehalf.patterns.operators import ops_of_plugins
from truehalf.patterns.report import LintSummary, lint_of_trace
from truehalf.runtime.ort import Session
from truehalf.verification.empty_tensors import empty_tensors
from truehalf.verification.findings import NOT_VERIFIED

if TYPE_CHECKING:
    import onnx_ir as ir
    import torch

PASSED_ON = "none: the file is passed on"
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Tracing:
    """How a model becomes an FP32 file, and what lint of the file ends that.

    Attributes:
        trace: exporter, opset and tolerance of the comparison.
        axes: {input or output: {axis: symbol}}, in place of `trace.dynamic_axes`; None: those that the spec names.
        lint: findings that are not wanted, and those that end it.
        plugins, plugin_ops: of the engine; their operators are no findings.
        repair: passes that the file will go through; what one of them fixes is reported, and ends nothing here. Before
            it is built, the engine's stage looks at the file once more.
    """

    trace: TraceConfig = field(default_factory=TraceConfig)
    axes: DynamicAxes | None = None
    lint: LintConfig = field(default_factory=LintConfig)
    plugins: Sequence[str] = ()
    plugin_ops: Sequence[str] = ()
    repair: Sequence[str] = ()

    def linted(self, model: ir.Model) -> LintSummary:
        """TensorRT compatibility of a file, for its report."""
        return lint_of_trace(model, self.lint, ops_of_plugins(model, self.plugins, self.plugin_ops)[0], self.repair)


def trace(
    source: torch.nn.Module | Path,
    example: Arrays,
    out_path: Path | str,
    options: Tracing | None = None,
    *,
    spec: IoSpec,
    check_feeds: Sequence[Arrays] = (),
    prepared: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
) -> TraceReport:
    """Export a module and compare the file with it; or check an FP32 file and write it anew, weights outside included.

    Args:
        source: takes the spec's inputs by position and returns its outputs, one tensor or a tuple; left as it was. Or
            an ONNX file, with which nothing is compared.
        example: real inputs to trace on, by name, with their batch axis.
        out_path: of the ONNX file, replaced together with io_spec.json beside it, only when all went well.
        spec: the I/O spec, see truehalf.models.source.io_spec.
        check_feeds: inputs to compare on, best unlike the example and of other batch sizes; of other heights and widths
            where these vary.
        prepared: entered only around the export, see truehalf.models.model.Model; the comparison is with the module as
            it is outside.

    Raises:
        StageError: when outputs are not what they are declared to be, model.classes names fewer or more classes than
            there are, the file cannot be read or the exporter fails, the file is not what the spec says, an axis that
            should vary cannot, an output of either side is not finite, a trained model's outputs differ, or lint finds
            what `lint.fail_on` says.
    """
    options = options or Tracing()
    parse_ignores(options.lint.ignore, RULES)  # before the work
    file = source if isinstance(source, Path) else None
    given = None if file is None else load_model(file)
    read = {} if file is None else {"model_path": file}
    spec_path = Path(out_path).parent / "io_spec.json"
    check_outputs({"out_path": out_path, "the I/O spec": spec_path}, read, source_weights(given) if given else [])
    out_path = destination(Path(out_path))
    notes: list[str] = []
    out_path.parent.mkdir(parents=True, exist_ok=True)
    scratch = tempfile.TemporaryDirectory(dir=out_path.parent, prefix=".trace")
    with written_whole(out_path) as written, scratch as folder:
        check_declared(spec)
        if given is None:
            module: Any = source
            exported = Path(folder) / "exported.onnx"
            subject, model = _exported(module, example, exported, options, spec, check_feeds, prepared)
            with explaining(subject):
                spec = attach(model, spec, varying_axes([outputs for _, outputs in subject.pairs]))
            facts, fed = partial(_compared, replace(subject, path=written, spec=spec)), [example, *check_feeds]
        else:
            model, fed = given, list(check_feeds)
            WeightsApart()(model)
            InferTypes()(model)
            check_names(model, spec)
            spec = attach(model, spec, {})
            facts = partial(_checked, file, model, written, check_feeds)
        empty = attempted("notes on empty tensors", notes.append, lambda: empty_tensors(model, fed))
        linted = options.linted(model)
        save_model(model, written)
        report = facts()
        write_text(written.with_name(spec_path.name), spec_text(spec) + "\n")
    return replace(
        report,
        opset=model.graph.opset_imports[""],
        unread_inputs=unread_in(model),
        lint=linted,
        model=model_facts(model, out_path),
        notes=[*(empty or []), *notes, *linted.get("missing", [])],
    )


def _exported(
    module: Any,
    example: Arrays,
    path: Path,
    options: Tracing,
    spec: IoSpec,
    check_feeds: Sequence[Arrays],
    prepared: Callable[[], AbstractContextManager[None]],
) -> tuple[Subject, ir.Model]:
    """Export a module, and run it on all feeds.

    Raises:
        StageError: as truehalf.exporting.export.export; where an input on which outputs depend was read by Python.
    """
    axes = named_axes(spec) if options.axes is None else options.axes
    config = replace(options.trace, dynamic_axes={name: dict(named) for name, named in axes.items()})
    made, before = copied(module), State(network_of(module))
    varying = [frozenset(axes.get(name, ())) for name in names_of(spec.inputs)]
    followed = config.exporter is Exporter.torchscript
    with prepared():
        watched: AbstractContextManager[list[Read]] = (
            reading(module, varying) if followed else contextlib.nullcontext([])
        )
        with watched as found:
            inputs, names = tensors_of(spec, example), (names_of(spec.inputs), names_of(spec.outputs))
            export(module, inputs, path, config, input_names=names[0], output_names=names[1])

        def at_double() -> list[Read]:
            try:
                return reads(aside(module), tensors_of(spec, doubled(spec, example)))
            except Exception:  # whatever the module raises, or torch.jit.trace
                return found

        own, installed = places_of(found, at_double)
    model = load_model(path)
    check_names(model, spec)
    check_unread(model, module, spec, example)
    pairs = [(feed, torch_outputs(module, spec, feed, example)) for feed in check_feeds]
    subject = Subject(
        module=module,
        made=made if before.changes() else None,
        path=path,
        spec=spec,
        example=example,
        pairs=pairs,
        own=own,
        installed=installed,
        options=config,
    )
    return subject, model


def _compared(subject: Subject) -> TraceReport:
    """Compare the written file with the module; the report's parity, and what the trace has fixed."""
    with explaining(subject):
        parity = compared_with_torch(subject.path, subject.spec, subject.pairs, subject.example, subject.options)
    baked = what_was_baked(subject)
    if reason := baked.reason:
        parity |= {"status": NOT_VERIFIED, "reason": reason}
    return TraceReport(
        exporter=subject.options.exporter.value,
        parameters=sum(parameter.numel() for parameter in subject.module.parameters()),
        parity=parity,
        baked=baked,
    )


def _checked(source: Path | None, model: ir.Model, written: Path, check_feeds: Sequence[Arrays]) -> TraceReport:
    """Run a file that is passed on; the report's parity.

    Raises:
        StageError: where ONNX Runtime cannot, or an output is not finite.
    """
    session = Session(written)
    for feed in check_feeds:
        for name, array in session.run(feed).items():
            if bad := int((~np.isfinite(array)).sum()) if array.dtype.kind == "f" else 0:
                raise StageError(
                    "not-finite",
                    f"{source} is no reference: output {name!r} holds {bad} NaN or Inf of {array.size} values on "
                    "samples of yours; expected finite values. Check the weights and the inputs",
                )
    weights = [value.const_value for graph in model.graphs() for value in graph.initializers.values()]
    reason = "the model is an ONNX file, so there is no torch module to compare it with; it is the reference"
    return TraceReport(
        exporter=PASSED_ON,
        parameters=sum(tensor.size for tensor in weights if tensor is not None and tensor.dtype.is_floating_point()),
        parity={"status": NOT_VERIFIED, "reason": reason, **counted(check_feeds), "provider": session.provider},
    )
