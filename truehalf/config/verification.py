"""Options of the verification: how FP16 files are run, what counts as a match, gates."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from truehalf.codes import coded
from truehalf.config.options import Options, key, share

# What verify.require may name. The stage verify judges all but the last three; `gate` these, by their stages' reports.
Verifiable = StrEnum(
    "Verifiable",
    "detections average_precision classes tensors batch adversarial reaction accumulation trace slim engine",
)
METRIC = re.compile(r"(\w+(?:\.\w+)*:\w+)\s*(<=|>=)\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)")  # of verify.metrics

Evaluation = StrEnum(
    "Evaluation",
    {"emulated_fp16": "emulated-fp16", "emulated_fp16_pessimistic": "emulated-fp16-pessimistic", "cuda": "cuda"},
)


@dataclass(frozen=True)
class GatesConfig(Options):
    """Limits of what a final file may be off; after "rounding" what good files measure. Absent outputs have none."""

    ap50_95_drop_max: float = share(0.005, "AP50-95 that is lost, against true labels, else against FP32's detections")
    low_self_ap50_95_drop_max: float = share(
        0.01, "AP50-95 lost, FP32's detections scored 0.1 or more as labels; rounding: 0.0001, of 16 samples 0.0007"
    )
    matched_fraction_min: float = share(0.99, "share of FP32's detections that are found again")
    extra_fraction_max: float = share(0.01, "share of the final file's detections that FP32 does not have")
    score_error_p99_max: float = share(
        0.06, "score error of matched detections scored 0.1 or more; rounding: 0.0125, of few detections 0.047"
    )
    rank_error_p99_max: float = share(
        0.06, "error between the i-th best scores of a sample, above 0.05; rounding: 0.007 to 0.047"
    )
    box_error_p99_max: float = share(0.005, "error of corners as a share of the image; rounding: 0.0006 to 0.0013")
    box_shift_max: float = share(
        0.001, "offset that all boxes share, of the image: mean over corners less three standard errors; rounding: 0"
    )
    label_flips_max: int = key(0, "detections found again as another class; samples with another best class", least=0)
    tensor_rms_max: float = key(
        0.005,
        "error of other outputs (rms, a share of FP32's); four times that if half a step of the input does so, too",
        least=0,
    )
    nonfinite_max: int = key(0, "NaN and Inf values in the outputs of the final file", least=0)


@dataclass(frozen=True)
class VerifyConfig(Options):
    """How two files are compared."""

    score_threshold: float = share(0.5, "detections of the reference above this must be matched")
    iou_threshold: float = share(0.9, "least IoU of a match, which has the same class")
    first_samples: int | None = key(
        None, "run on only so many of data.verification_samples, and compile no engine; null: all", least=1
    )
    batch: int = key(25, "samples in memory at a time, at most", least=1)
    memory_gb: float = key(2.2, "GB of activations, estimated, that a run may take; larger batches are split", above=0)
    evaluation: Evaluation = key(
        Evaluation.emulated_fp16,
        "emulated-fp16: rounding on the CPU; emulated-fp16-pessimistic: sums inside nodes rounded, too; cuda",
    )
    gates: GatesConfig = GatesConfig()
    metrics: tuple[str, ...] = key(
        (), "functions of yours, (reference, candidate) -> number, with a limit: 'my_metrics:mean_iou >= 0.98'"
    )
    pictures: int = key(3, "drawn in the report at least, worst first", least=0)
    require: tuple[Verifiable, ...] = key((), f"fail when not verified: {', '.join(Verifiable)}")

    @property
    def metric_functions(self) -> list[str]:
        """module:function of each entry of `metrics`."""
        return [found[1] for entry in self.metrics if (found := METRIC.fullmatch(entry))]

    def problems(self) -> Iterator[str]:
        for i, entry in enumerate(self.metrics):
            if not METRIC.fullmatch(entry):
                yield coded(
                    "bad-syntax",
                    f"metrics[{i}]: expected module:function <= number, or >=, such as "
                    f"'my_metrics:mean_iou >= 0.98', got {entry!r}",
                )
