"""Export of a torch module as FP32 ONNX with stable names, known value types and its I/O spec, compared with torch by
the rule of truehalf.verification.metrics.tensors. What the trace has baked in is looked for on inputs that differ
(truehalf.exporting.decisions).
"""

from __future__ import annotations

import contextlib
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from truehalf.config.schema import LintConfig, TraceConfig
from truehalf.errors import attempted
from truehalf.exporting.after_export import DynamicAxes
from truehalf.exporting.against_torch import (
    compared_with_torch,
    tensors_of,
    torch_outputs,
    unread_inputs,
)
from truehalf.exporting.decisions import Subject, check_repeats, explaining, what_was_baked
from truehalf.exporting.export import export
from truehalf.exporting.trace_report import TraceReport
from truehalf.files import check_outputs, destination, write_text, written_whole
from truehalf.io_spec.in_file import attach, check_declared, check_names, named_axes, names_of, spec_text
from truehalf.io_spec.spec import IoSpec
from truehalf.ir.facts import model_facts
from truehalf.ir.model_file import load_model, save_model
from truehalf.linting import RULES
from truehalf.linting.ignoring import parse_ignores
from truehalf.linting.plugin_ops import ops_of_plugins
from truehalf.linting.report import LintSummary, lint_of_trace
from truehalf.models.as_made import State, copied
from truehalf.models.calling import network_of
from truehalf.models.sizes import varying_axes
from truehalf.verification.empty_tensors import empty_tensors
from truehalf.verification.findings import NOT_VERIFIED

if TYPE_CHECKING:
    import onnx_ir as ir
    import torch

SPEC_FILE = "io_spec.json"
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
    module: torch.nn.Module,
    example: Arrays,
    out_path: Path | str,
    options: Tracing | None = None,
    *,
    spec: IoSpec,
    check_feeds: Sequence[Arrays] = (),
    prepared: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
) -> TraceReport:
    """Export a module and compare the file with it.

    Args:
        module: takes the spec's inputs by position and returns its outputs, one tensor or a tuple; left as it was.
        example: real inputs to trace on, by name, with their batch axis.
        out_path: of the ONNX file, replaced only when all went well; io_spec.json is written beside it.
        spec: the I/O spec, see truehalf.models.source.io_spec.
        check_feeds: inputs to compare on, best unlike the example and of other batch sizes; of other heights and widths
            where these vary.
        prepared: entered only around the export, see truehalf.models.model.Model; the comparison is with the module as
            it is outside.

    Raises:
        StageError: when outputs are not what they are declared to be, model.classes names fewer or more classes than
            there are, the exporter fails, the file is not what the spec says, an axis that should vary cannot, an
            output of either side is not finite, a trained model's outputs differ, or lint finds what `lint.fail_on`
            says.
    """
    options = options or Tracing()
    parse_ignores(options.lint.ignore, RULES)  # before the work
    axes = named_axes(spec) if options.axes is None else options.axes
    config = replace(options.trace, dynamic_axes={name: dict(named) for name, named in axes.items()})
    out_path, spec_path = places(out_path, {})
    inputs = tensors_of(spec, example)
    check_declared(spec)
    made, before = copied(module), State(network_of(module))
    with tempfile.TemporaryDirectory(dir=out_path.parent, prefix=".trace") as folder:
        exported, described = Path(folder) / "exported.onnx", Path(folder) / "described" / out_path.name
        with prepared():
            traced = copied(module)
            input_names, output_names = names_of(spec.inputs), names_of(spec.outputs)
            warned = export(module, inputs, exported, config, input_names=input_names, output_names=output_names)
        model = load_model(exported)
        check_names(model, spec)
        check_repeats(lambda: torch_outputs(module, spec, example, example), spec, config)
        unread = unread_inputs(model, module, spec, example)
        references = [torch_outputs(module, spec, feed, example) for feed in check_feeds]
        spec = attach(model, spec, varying_axes(references))
        notes: list[str] = []
        fed = [example, *check_feeds]
        empty = attempted("notes on empty tensors", notes.append, lambda: empty_tensors(model, fed))
        linted = options.linted(model)
        save_model(model, described)
        pairs = list(zip(check_feeds, references, strict=True))
        subject = Subject(
            module=module,
            made=made,
            traced=traced,
            before=before,
            path=described,
            spec=spec,
            example=example,
            pairs=pairs,
            caught=warned,
            options=config,
        )
        with explaining(subject):
            parity = compared_with_torch(described, spec, pairs, example, config)
        baked = what_was_baked(subject)
        moved_into_place(described.parent, out_path)
    write_text(spec_path, spec_text(spec) + "\n")
    if reason := baked.reason:
        parity |= {"status": NOT_VERIFIED, "reason": reason}
    return TraceReport(
        exporter=config.exporter.value,
        opset=model.graph.opset_imports[""],
        warnings=dict(Counter(warning.category.__name__ for warning in warned)),
        parameters=sum(parameter.numel() for parameter in module.parameters()),
        unread_inputs=unread,
        parity=parity,
        baked=baked,
        lint=linted,
        model=model_facts(model, out_path),
        notes=[*(empty or []), *notes, *linted.get("missing", [])],
    )


def places(out_path: Path | str, inputs: Mapping[str, object], weights: Sequence[Path | str] = ()) -> tuple[Path, Path]:
    """Where the model and its I/O spec are written, links followed, in a folder that is there."""
    out_path = Path(out_path)
    spec_path = out_path.parent / SPEC_FILE
    check_outputs({"out_path": out_path, "the I/O spec": spec_path}, inputs, weights)
    place = destination(out_path)
    place.parent.mkdir(parents=True, exist_ok=True)
    return place, spec_path


def moved_into_place(folder: Path, out_path: Path) -> None:
    """Move the files of a folder, a model and its large weights, to where they belong."""
    with written_whole(out_path) as building:
        for file in folder.iterdir():
            file.replace(building.with_name(file.name))
