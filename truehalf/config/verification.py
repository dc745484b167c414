"""Options of the verification: how FP16 files are run, what counts as a match, gates."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

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

    SECTION: ClassVar[str] = "verify.gates"

    ap50_95_drop_max: float = share(
        0.005, "AP50-95 of FP32 minus that of the final file, against true labels, else FP32's detections"
    )
    low_self_ap50_95_drop_max: float = share(
        0.01, "1 minus AP50-95 against the FP32 detections scored 0.1 and more; rounding: 0.0001, 0.0007 on 16 samples"
    )
    matched_fraction_min: float = share(0.99, "share of the FP32 detections that are matched")
    extra_fraction_max: float = share(0.01, "share of the final file's detections that FP32 does not have")
    score_error_p99_max: float = share(
        0.06,
        "score error of matched detections, and of those from 0.1 to the threshold; rounding: 0.0125, of few "
        "detections up to 0.047",
    )
    rank_error_p99_max: float = share(
        0.06, "score error of the i-th best scores of a sample, of those above 0.05; rounding: 0.007, and 0.047 at most"
    )
    box_error_p99_max: float = share(
        0.005, "error of corners, as a share of the image; rounding: 0.0006, and 0.0013 at most"
    )
    box_shift_max: float = share(
        0.001,
        "what corners are off on average, less three standard errors, of all boxes or the larger half; rounding: 0",
    )
    label_flips_max: int = key(
        0, "detections that the final file finds again, as another class; samples with another best class", least=0
    )
    tensor_error_max: float = key(
        0.01, "largest difference of other outputs, as a share of the output's largest value in FP32", least=0
    )
    nonfinite_max: int = key(0, "NaN and Inf values in the outputs of the final file", least=0)


@dataclass(frozen=True)
class VerifyConfig(Options):
    """How two files are compared."""

    SECTION: ClassVar[str] = "verify"

    score_threshold: float = share(0.5, "detections of the reference above this must be matched")
    iou_threshold: float = share(0.9, "least IoU of a match, which has the same class")
    tie_margin: float = share(
        0.004,
        "another best class, softmax label, index, mark of the largest (Hardmax, Equal) or step (Greater, Round) is a "
        "near tie, and counted, where the FP32 values of the two are this share of their spread apart, or less; 0.004: "
        "four to eight FP16 steps",
    )
    first_samples: int | None = key(
        None, "the first of data.verification_samples that files run on, no engine is compiled then; null: all", least=1
    )
    batch: int = key(25, "samples in memory at a time, at most", least=1)
    memory_gb: float = key(
        2.2,
        "GB of activations in a run, estimated; where a batch takes more, it has fewer samples, and no larger one"
        " is tried",
        above=0,
    )
    evaluation: Evaluation = key(
        Evaluation.emulated_fp16,
        "emulated-fp16: rounding on the CPU; emulated-fp16-pessimistic: sums inside nodes rounded, too; cuda",
    )
    gates: GatesConfig = GatesConfig()
    metrics: tuple[str, ...] = key(
        (), "functions of yours, (reference, candidate) -> number, with a limit: 'my_metrics:mean_iou >= 0.98'"
    )
    pictures: int = key(3, "drawn in the report at least, worst first", least=0)
    profile: bool = key(
        True,
        "error of every node, for the page: both files once more, on one sample, in one graph (12 s and 2.3 GB at "
        "640x640)",
    )
    require: tuple[Verifiable, ...] = key(
        (),
        "fail when not verified: detections, average_precision, classes, tensors, batch, adversarial, reaction, "
        "accumulation, trace, slim, engine",
    )
    skip_corrupt: bool = key(
        False, "data=images: leave out images that cannot be read (named in the report) instead of stopping"
    )
    suggest: bool = key(
        False, "look for the shortest list of further pins that brings a failed file inside the gates; never applied"
    )
    suggest_runs: int = key(300, "runs that this search may take, 10 or more", least=10)

    @property
    def metric_functions(self) -> list[str]:
        """module:function of each entry of `metrics`."""
        return [found[1] for entry in self.metrics if (found := METRIC.fullmatch(entry))]

    def problems(self) -> Iterator[str]:
        for i, entry in enumerate(self.metrics):
            if not METRIC.fullmatch(entry):
                yield coded(
                    "bad-syntax",
                    f"verify.metrics[{i}]: expected module:function <= number, or >=, such as "
                    f"'my_metrics:mean_iou >= 0.98', got {entry!r}",
                )
