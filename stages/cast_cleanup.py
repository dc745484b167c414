"""cast_cleanup: clean-up of Casts (truehalf/conversion/casts.py has the rules)."""

from __future__ import annotations

from stages.frame import Report, Stage
from truehalf.config.precision import PrecisionName
from truehalf.conversion.casts_of_file import clean_casts
from truehalf.files import MODEL_FILE


def run(stage: Stage) -> Report:
    precision, source = stage.config.precision, stage.artifact("fp16")
    if precision.dtype is PrecisionName.fp32:
        passed_on = stage.pass_on(source, f"precision={precision.dtype.value}: the file is passed on as it is")
        casts = passed_on["model"]["casts"]
        return {**passed_on, "casts_before": casts, "casts_after": casts}
    report = clean_casts(
        source,
        stage.out / MODEL_FILE,
        strict=precision.strict_clean_up,
        fold_max_bytes=precision.init_conversion_max_bytes,  # what fp16 left to the runtime stays there
    )
    return report.to_json()
