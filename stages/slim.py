"""slim: the traced file with fewer nodes, repaired, and the proof that it is the same (truehalf/slimming/slim.py)."""

from __future__ import annotations

from stages.frame import Report, Stage
from truehalf.data.run_samples import run_samples
from truehalf.files import MODEL_FILE
from truehalf.ir.model_file import load_model
from truehalf.slimming.slim import check_feeds_of, slim


def run(stage: Stage) -> Report:
    config, source = stage.config, stage.artifact("trace")
    if not config.simplify and not config.repair.passes:
        return stage.pass_on(source, "simplify=false and repair=none: the traced file is passed on as it is")
    samples = run_samples("calibration", config, stage.root, stage.io_spec())
    return slim(
        source,
        stage.out / MODEL_FILE,
        config.slim,
        simplify=config.simplify,
        repair=config.repair.passes,
        check_feeds=check_feeds_of(samples, load_model(source)),
    ).to_json()
