"""calibrate: value ranges of every float tensor of the FP32 model, over real samples
(truehalf/calibration/calibrate.py).

Facts of the FP32 model alone: no precision setting is read, so none re-runs this stage.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from stages.frame import Stage, stage_main
from truehalf.calibration.calibrate import calibrate
from truehalf.config.schema import DataSource
from truehalf.data.noise import WARNING
from truehalf.data.samples import Sample, Samples, calibration_samples, verification_samples
from truehalf.files import read_json, write_json
from truehalf.ir.model_file import load_model
from truehalf.ir.ready import make_ready

__all__ = ["calibrate"]
ONE_SAMPLE = (
    "calibrated on the sample that is verified with, for there is one alone: that it passes proves nothing of others. "
    "Give more samples: docs/data.md"
)


class SampleFeeds:
    """Samples as feeds, made anew each time they are iterated over; where a batch of k is fixed, each sample k times.

    Attributes:
        names: of the samples.
    """

    def __init__(self, samples: Sequence[Sample], batch: int) -> None:
        self._samples, self._batch = samples, batch
        self.names = samples.names if isinstance(samples, Samples) else [sample.name for sample in samples]

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        for sample in self._samples:
            yield {name: np.repeat(array[np.newaxis], self._batch, axis=0) for name, array in sample.feeds.items()}


def fixed_batch(model: ir.Model) -> int:
    """The leading axis of the inputs where the model fixes it, else 1."""
    leading = {value.shape[0] for value in model.graph.inputs if value.shape is not None and len(value.shape)}
    fixed = {axis for axis in leading if isinstance(axis, int)}
    return fixed.pop() if len(fixed) == 1 else 1


def run(stage: Stage) -> dict[str, Any]:
    spec = read_json(stage.artifact("trace", "io_spec.json"))
    samples = calibration_samples(stage.config, stage.root, spec)
    model = load_model(stage.artifact("slim"))
    make_ready(model)
    ranges = calibrate(model, SampleFeeds(samples, fixed_batch(model)))
    write_json(stage.out() / "ranges.json", ranges)
    warnings = [WARNING] if stage.config.data.source is DataSource.random else []
    if len(samples) == 1 and samples.names == verification_samples(stage.config, stage.root, spec).names:
        warnings.append(ONE_SAMPLE)
    return report(ranges, model) | ({"warnings": warnings} if warnings else {})


def report(ranges: Mapping[str, Any], model: ir.Model) -> dict[str, Any]:
    """The content of reports/calibrate.json: counts, and the ten largest tensors with their producers."""
    producers = {value.name: node.name or node.op_type for node in model.graph for value in node.outputs}
    tensors = ranges["tensors"]
    measured = {name: entry for name, entry in tensors.items() if entry["absmax"] is not None}
    largest = sorted(measured, key=lambda name: -measured[name]["absmax"])[:10]
    return {
        "samples": ranges["samples"],
        "tensors": len(tensors),
        "tensors_above_512": sum(entry["absmax"] > 512 for entry in measured.values()),
        "tensors_above_65504": sum(entry["absmax"] > 65504 for entry in measured.values()),
        "tensors_nonfinite": sum(bool(e["nan"] + e["posinf"] + e["neginf"]) for e in tensors.values()),
        "largest": [
            {"tensor": name, "node": producers.get(name), "sample": tensors[name]["sample"]}
            | {"absmax": tensors[name]["absmax"]}
            for name in largest
        ],
    }


def main() -> None:
    stage_main("calibrate", run)


if __name__ == "__main__":
    main()
