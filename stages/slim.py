"""slim: the traced file with fewer nodes, repaired, and the proof that it is the same (truehalf/slimming/slim.py)."""

from __future__ import annotations

from collections.abc import Mapping

from stages.frame import Stage, stage_main
from truehalf.data.samples import calibration_samples
from truehalf.files import MODEL_FILE
from truehalf.ir.facts import model_facts
from truehalf.ir.model_file import load_model
from truehalf.slimming.check_feeds import check_feeds
from truehalf.slimming.slim import slim


def run(stage: Stage) -> Mapping[str, object]:
    config, source = stage.config, stage.artifact("trace")
    if not config.simplify and not config.repair.passes:
        stage.copy(source)
        reason = "simplify=false and repair=none: the traced file is passed on as it is"
        facts = model_facts(load_model(source), source)
        return {"status": "skipped", "reason": reason, "model": facts}
    spec = stage.io_spec()
    samples = calibration_samples(config, stage.root, spec)
    return slim(
        source,
        stage.out() / MODEL_FILE,
        config.slim,
        simplify=config.simplify,
        repair=config.repair.passes,
        check_feeds=check_feeds(samples, load_model(source)),
    )


if __name__ == "__main__":
    stage_main("slim", run)
