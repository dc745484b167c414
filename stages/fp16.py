"""fp16: the slimmed file in mixed precision (truehalf/conversion/convert.py), checked on samples of calibration and
converted again with the pins that it needs (truehalf/verification/chain/quick_check.py); or, under
precision.method=half and autocast, the torch module traced in FP16 (truehalf/exporting/half.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from stages.frame import Report, Stage
from truehalf.config.precision import Method, PrecisionName
from truehalf.config.typed import plain
from truehalf.conversion.convert import convert_model
from truehalf.conversion.report import Fp16Report, skipped_report
from truehalf.conversion.rules.base import Decision
from truehalf.data.run_samples import run_samples
from truehalf.exporting.half import half_configured
from truehalf.files import MODEL_FILE, read_json, write_json
from truehalf.io_spec.profiles import completed
from truehalf.ir.model_file import load_model, model_size_mb, save_model
from truehalf.verification.chain.quick_check import check_conversion
from truehalf.verification.pinning.reconversion import Reconversion


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
    ranges, options = read_json(stage.artifact("calibrate", "ranges.json")), config.precision

    def convert(pins: Mapping[str, Decision] | None = None) -> Fp16Report:
        made = convert_model(load_model(slim), options, ranges, input_shapes=shapes, pins=pins)
        if made.is_converted:
            save_model(made.model, out)
        else:
            stage.copy(slim)
        write_json(decisions, made.decisions)
        report = made.report()
        return replace(report, model={**report.model, "size_mb": model_size_mb(out)})

    report = convert()
    if options.measured and report.status != "skipped":
        samples = run_samples("calibration", config, stage.root, spec)
        checked = check_conversion(slim, out, samples, Reconversion(options, ranges, shapes))
        report = replace(convert(checked.pins) if checked.pins else report, check=plain(checked.check))
    return report.to_json()
