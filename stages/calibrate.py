"""calibrate: value ranges of every float tensor of the FP32 model, over real samples
(truehalf/calibration/calibrate.py).

Facts of only the FP32 model: no precision setting is read, so none re-runs this stage.
"""

from __future__ import annotations

from stages.frame import Stage, stage_main
from truehalf.calibration.calibrate import calibrate
from truehalf.calibration.ranges_form import calibration_report
from truehalf.config.schema import DataSource
from truehalf.data.given import SampleFeeds, fixed_batch
from truehalf.data.noise import WARNING
from truehalf.data.samples import calibration_samples, verification_samples
from truehalf.files import write_json
from truehalf.ir.model_file import load_model
from truehalf.ir.normalize import PREPARE
from truehalf.json_values import JsonObject

ONE_SAMPLE = (
    "calibrated on the sample that is verified with, as there is only one: that it passes proves nothing of others. "
    "Give more samples: docs/how-to/data.md"
)


def run(stage: Stage) -> JsonObject:
    spec = stage.io_spec()
    samples = calibration_samples(stage.config, stage.root, spec)
    model = load_model(stage.artifact("slim"))
    PREPARE(model)
    ranges = calibrate(model, SampleFeeds(samples, fixed_batch(model)))
    write_json(stage.out() / "ranges.json", ranges)
    warnings = [WARNING] if stage.config.data.source is DataSource.random else []
    if len(samples) == 1 and samples.names == verification_samples(stage.config, stage.root, spec).names:
        warnings.append(ONE_SAMPLE)
    return {**calibration_report(ranges, model), **({"warnings": warnings} if warnings else {})}


if __name__ == "__main__":
    stage_main("calibrate", run)
