"""fp16: the slimmed file in mixed precision (truehalf/conversion/convert.py), or, under precision.method=half and
autocast, the torch module traced in FP16 (truehalf/exporting/half.py).
"""

from __future__ import annotations

from stages.frame import Report, Stage
from truehalf.config.precision import Method, PrecisionName
from truehalf.conversion.fp16_file import to_fp16
from truehalf.conversion.report import skipped_report
from truehalf.exporting.half import half_configured
from truehalf.files import MODEL_FILE, write_json
from truehalf.io_spec.profiles import completed


def run(stage: Stage) -> Report:
    config, slim, out = stage.config, stage.artifact("slim"), stage.out / MODEL_FILE
    decisions = stage.out / "decisions.json"
    if config.precision.dtype is PrecisionName.fp32:
        stage.copy(slim)
        write_json(decisions, [])
        return skipped_report(slim).to_json()
    spec = stage.io_spec()
    shapes = {name: sides["opt"] for name, sides in completed(config.engine.profiles, spec.inputs)[0].items()}
    if config.precision.method is not Method.convert:
        report, rows = half_configured(config, stage.root, out, spec, shapes)
        write_json(decisions, rows)
        return report.to_json()
    ranges = stage.artifact("calibrate", "ranges.json")
    options = config.precision
    return to_fp16(slim, out, options, ranges=ranges, input_shapes=shapes, decisions_path=decisions).to_json()
