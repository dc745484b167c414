"""FP32 file of a configuration: its model opened, traced on its samples, and compared with torch.

Where height or width vary, the comparison also runs at two sizes that were not traced (truehalf.models.sizes).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from truehalf.config.schema import Config
from truehalf.data.fitting import fitted
from truehalf.data.images import LabelledImage
from truehalf.data.run_samples import TRACE_SAMPLES, run_sources
from truehalf.data.samples import filled
from truehalf.errors import failing
from truehalf.exporting.after_export import DynamicAxes
from truehalf.exporting.against_torch import shapes_of
from truehalf.exporting.trace import Tracing, trace
from truehalf.exporting.trace_report import TraceReport
from truehalf.models.model import Model
from truehalf.models.sizes import at_other_sizes
from truehalf.models.source import described, dynamic_axes_of, open_model, samples_to_trace, spec_of
from truehalf.verification.findings import NOT_VERIFIED


def export_configured(config: Config, root: Path, out_path: Path) -> TraceReport:
    """Write the FP32 file of a configuration.

    Args:
        config: of the run.
        root: its workspace; paths are relative to it.
        out_path: of the ONNX file; io_spec.json is written beside it.

    Raises:
        StageError: as truehalf.exporting.trace.trace.
    """
    model = open_model(config, root)
    axes = dynamic_axes_of(config, model)
    samples, batch, example = samples_to_trace(model, config, root)
    sizes = [size for size in (3, 2, 1) if size != batch][:2] if _batch_varies(model, axes) else [batch]
    start = min(batch, TRACE_SAMPLES // 2)
    with failing("module-fails", f"the module itself fails in torch on {shapes_of(example)}"):
        spec = spec_of(model, example, axes, rows=True)
    feeds = [filled(samples, size, start + sum(sizes[:i])) for i, size in enumerate(sizes)]
    options = Tracing(
        trace=config.trace,
        axes=axes,
        lint=config.lint,
        plugins=config.engine.plugins,
        plugin_ops=config.engine.plugin_ops,
        repair=config.repair.passes,
    )
    if model.file is not None:
        report = trace(model.file, example, out_path, options, spec=spec, check_feeds=feeds)
        return replace(report, notes=[*model.notes, *report.notes])
    resized = _at_other_sizes(config, model, root, axes, batch)
    checked = [*feeds, *resized]
    report = trace(model.module, example, out_path, options, spec=spec, check_feeds=checked, prepared=model.prepared)
    assert report.baked is not None
    if not report.baked.reason and not resized and at_other_sizes(model.inputs, axes):
        reason = f"height and width vary, and data={config.data.source.value} gives arrays, which cannot be resized"
        report = replace(report, parity={**report.parity, "status": NOT_VERIFIED, "reason": reason})
    unread = [f"input {name!r}: no output that is kept depends on it" for name in report.unread_inputs]
    return replace(report, notes=[*model.notes, *unread, *report.notes])


def _batch_varies(model: Model, axes: DynamicAxes) -> bool:
    return 0 in axes.get(model.inputs[0].name, {})


def _at_other_sizes(
    config: Config, model: Model, root: Path, axes: DynamicAxes, batch: int
) -> list[dict[str, np.ndarray]]:
    """Samples to trace on, at two other sizes where height or width vary; none where the data is no images."""
    others = at_other_sizes(model.inputs, axes)
    source = run_sources(config, root)["trace"] if others else None
    if source is None or not isinstance(source.load(0), LabelledImage):
        return []
    rows = [fitted(source, described(replace(model, inputs=inputs)))[:2] for inputs in others]
    return [filled(samples, 2 if _batch_varies(model, axes) else batch) for samples in rows]
