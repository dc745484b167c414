"""cast_cleanup: clean-up of Casts (truehalf/conversion/casts.py has the rules)."""

from __future__ import annotations

from collections.abc import Mapping

from stages.frame import Stage, stage_main
from truehalf.config.precision import PrecisionName
from truehalf.conversion.casts import count_casts
from truehalf.conversion.casts_of_file import clean_casts
from truehalf.files import MODEL_FILE
from truehalf.ir.facts import model_facts
from truehalf.ir.model_file import load_model
from truehalf.ir.normalize import InferTypes


def run(stage: Stage) -> Mapping[str, object]:
    precision = stage.config.precision
    if precision.dtype is PrecisionName.fp32:
        return _pass_on(stage)
    report = clean_casts(
        stage.artifact("fp16"),
        stage.out() / MODEL_FILE,
        strict=precision.strict_clean_up,
        fold_max_bytes=precision.init_conversion_max_bytes,  # what fp16 left to the runtime stays there
    )
    return report.to_json()


def _pass_on(stage: Stage) -> Mapping[str, object]:
    source = stage.artifact("fp16")
    stage.copy(source)
    model = load_model(source)
    InferTypes()(model)
    return {
        "status": "skipped",
        "reason": f"precision={stage.config.precision.dtype.value}: the file is passed on as it is",
        "casts_before": count_casts(model),
        "casts_after": count_casts(model),
        "model": model_facts(model, source),
    }


if __name__ == "__main__":
    stage_main("cast_cleanup", run)
