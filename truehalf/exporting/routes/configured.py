"""FP16 file of a configuration whose precision.method is half or autocast: the module itself, traced and slimmed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from truehalf.config.schema import Config
from truehalf.conversion.report import Decision, Fp16Report
from truehalf.data.run_samples import TRACE_SAMPLES, run_samples
from truehalf.data.samples import filled
from truehalf.exporting.routes.half_trace import HalfTracing, trace_in_fp16
from truehalf.io_spec.spec import IoSpec
from truehalf.models.source import dynamic_axes_of, open_model


def trace_configured(
    config: Config, root: Path, out_path: Path, spec: IoSpec, shapes: Mapping[str, Sequence[int]]
) -> tuple[Fp16Report, list[Decision]]:
    """Trace the configured module in FP16.

    Args:
        config: of the run.
        root: its workspace.
        out_path: of the ONNX file.
        spec: the I/O spec of the FP32 file.
        shapes: by graph input, the shape at which costs of casts are compared.

    Returns:
        the report, and a row for each node, as the conversion has them.

    Raises:
        StageError: as truehalf.exporting.routes.half_trace.trace_in_fp16.
    """
    model = open_model(config, root)
    options = HalfTracing(
        precision=config.precision,
        trace=replace(config.trace, dynamic_axes=dynamic_axes_of(config, model)),
        slim=config.slim,
        repair=config.repair.passes,
    )
    batch = model.batch or config.trace.batch
    example = filled(run_samples("trace", config, root, spec)[: min(batch, TRACE_SAMPLES // 2)], batch)
    return trace_in_fp16(model, example, out_path, options, spec=spec, input_shapes=shapes)
