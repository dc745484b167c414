"""calibrate: value ranges of every float tensor of the FP32 model, over real samples
(truehalf/calibration/calibrate.py).

Facts of only the FP32 model: no precision setting is read, so none re-runs this stage.
"""

from __future__ import annotations

from dataclasses import replace

from stages.frame import Report, Stage
from truehalf.calibration.calibrate import calibrate
from truehalf.calibration.calibrate_report import calibration_report
from truehalf.config.schema import DataSource
from truehalf.data.fitting import WARNING
from truehalf.data.run_samples import run_samples
from truehalf.data.samples import Feeds
from truehalf.files import read_json, write_json
from truehalf.ir.facts import fixed_batch
from truehalf.ir.model_file import load_model
from truehalf.ir.normalize import PREPARE

ONE_SAMPLE = (
    "calibrated on the sample that is verified with, as there is only one: that it passes proves nothing of others. "
    "Give more samples: docs/how-to/data.md"
)


def run(stage: Stage) -> Report:
    samples = run_samples("calibration", stage.config, stage.root, stage.io_spec())
    model = load_model(stage.artifact("slim"))
    PREPARE(model)
    ranges = calibrate(model, Feeds(samples, fixed_batch(model) or 1))
    write_json(stage.out / "ranges.json", ranges)
    warnings = [WARNING] if stage.config.data.source is DataSource.random else []
    if read_json(stage.artifact("inputs", "calibration.json")).get("also_verifies"):
        warnings.append(ONE_SAMPLE)
    return replace(calibration_report(ranges, model), warnings=warnings).to_json()
