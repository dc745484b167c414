"""fp16: the slimmed file in mixed precision (truehalf/conversion/convert.py), or, under precision.method=half and
autocast, the torch module traced in FP16 (truehalf/exporting/routes).
"""

from __future__ import annotations

from collections.abc import Mapping

from stages.frame import Stage, stage_main
from truehalf.config.precision import Method, PrecisionName
from truehalf.config.typed import plain
from truehalf.conversion.fp16_file import to_fp16
from truehalf.conversion.report import skipped_report
from truehalf.files import MODEL_FILE, write_json
from truehalf.io_spec.profile_shapes import completed


def run(stage: Stage) -> Mapping[str, object]:
    config, out = stage.config, stage.out() / MODEL_FILE
    # What verify converts anew by. It goes by this file, so that options which change no file verify none again.
    write_json(stage.out() / "precision.json", plain(config.conversion) if config.verify.suggest else None)
    if config.precision.dtype is PrecisionName.fp32:
        stage.copy(stage.artifact("slim"))
        write_json(stage.out() / "decisions.json", [])
        return skipped_report(stage.artifact("slim"))
    spec = stage.io_spec()
    shapes = {name: each["opt"] for name, each in completed(config.engine.profiles, spec.inputs)[0].items()}
    if config.precision.method is not Method.convert:
        from truehalf.exporting.routes.configured import trace_configured

        report, rows = trace_configured(config, stage.root, out, spec, shapes)
        write_json(stage.out() / "decisions.json", rows)
        return report
    return to_fp16(
        stage.artifact("slim"),
        out,
        config.conversion,
        ranges=stage.artifact("calibrate", "ranges.json"),
        input_shapes=shapes,
        decisions_path=stage.out() / "decisions.json",
    )


if __name__ == "__main__":
    stage_main("fp16", run)
