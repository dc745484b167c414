"""Report of a verification, of two files or of the last file of a chain, with its one JSON form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from truehalf.files import plain
from truehalf.io_spec.outputs import TENSORS
from truehalf.json_values import JsonObject
from truehalf.verification.comparison import Comparison
from truehalf.verification.findings import FAILED, PASSED, Finding, by_check, open_of, reasons_of, verdict_of
from truehalf.verification.localize.locate import Place, Suspect, first_bad_node
from truehalf.verification.metrics.detections import DetectionSummary
from truehalf.verification.metrics.kinds import ClassAgreement
from truehalf.verification.metrics.outputs import OutputErrors
from truehalf.verification.pinning.as_argument import pins_flags
from truehalf.verification.user_metrics import CHECK as USER_METRICS

_FIELDS = (
    *("evaluation", "provider", "reference_evaluation", "preprocessing", "proposed", "plugins"),
    "stages",
)
_DERIVED = ("passed", "verdict", "reasons", "not_verified", "first_bad_node", "pins", "task", "samples", "worst_sample")


@dataclass(frozen=True)
class Report:
    """Verdict, flat metrics and what they follow from: `truehalf verify --json`, reports/verify.json, verdict.json.

    Attributes:
        verdict, reasons: "passed", "failed" or "not verified", and why.
        not_verified: what this verification says nothing about, and why; may be there when it passed, too.
        findings: what was looked at, with its state; the verdict and all reasons follow from them.
        checks: state and reason of each check.
        task: "detections", "classification" or "tensors".
        outputs: errors by output; of queries after pairing them one to one.
        detections: metrics of detections, and self_ap50, self_ap50_95 and their drops; None for other tasks, and where
            they mean nothing: of random weights, and of outputs of other shapes.
        classification: metrics of classes; None for other tasks.
        evaluation, provider: what ran the file; evaluation is "fp32-cpu" where it holds no FP16.
        reference_evaluation: "fp32-cpu"; "emulated-fp16" where the reference holds FP16; "torch" in a chain.
        samples: inputs compared: rows of axis 0 where it counts samples, else feeds.
        worst_sample: the one that differs most; None when all are equal.
        place: where it goes wrong, once that was looked for.
        first_bad_node: the name of the node where it goes wrong, or "OpType -> <first output>" where it has none; None
            when nothing was looked for, and in a file that passed unless its error is more than rounding explains.
        suspects: nodes that may cause it, the likeliest first.
        preprocessing: of images, as applied; None for arrays.
        proposed: I/O spec that was taken, as none is declared and outputs are plainly detections; None otherwise.
        stages: of a chain, each file in short.
        comparison: what was compared, whose measures stand in JSON beside these; None where nothing was run.
        ap50, ap50_95: COCO average precision against true labels, 0 to 1; ..._fp32 of the reference.
        matched_fraction, missed, extra, label_flips: of detections above the score threshold.
        metrics: of the user's own functions.
        top1_agreement: of a classifier: share of samples with the FP32 best class.
        tensor_rms: of other outputs: largest error, root mean squares as a share of the FP32 model's.
        box_error_px_p99, box_error_px_max: of matched detections, pixels.
        score_error_p99, score_error_max: of matched detections, 0 to 1.
        nan, inf: counts in the outputs.
        max_abs_error: by output; of a detector over confident queries.
    """

    findings: Sequence[Finding]
    evaluation: str
    provider: str
    reference_evaluation: str
    comparison: Comparison | None = None
    place: Place | None = None
    preprocessing: JsonObject | None = None
    proposed: JsonObject | None = None
    plugins: Sequence[str] = ()
    stages: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def task(self) -> str:
        return self.comparison.task if self.comparison else TENSORS

    @property
    def outputs(self) -> Mapping[str, OutputErrors]:
        return self.comparison.outputs if self.comparison else {}

    @property
    def measures(self) -> Mapping[str, Any]:
        """Numbers by name; empty where nothing was run."""
        return self.comparison.measures if self.comparison else {}

    @property
    def detections(self) -> DetectionSummary | None:
        return self.measures.get("detections")

    @property
    def classification(self) -> ClassAgreement | None:
        return self.measures.get("classification")

    @property
    def tensor_rms(self) -> float | None:
        return self.measures.get("tensor_rms")

    @property
    def samples(self) -> int:
        return int(self.measures.get("samples", 0))

    @property
    def worst_sample(self) -> str | None:
        worst = self.comparison.worst if self.comparison else None
        return None if worst is None or self.comparison is None else self.comparison.samples[worst].sample

    @property
    def verdict(self) -> str:
        """ "passed", "failed" or "not verified"."""
        return verdict_of(self.findings)

    @property
    def passed(self) -> bool:
        return self.verdict == PASSED

    @property
    def reasons(self) -> list[str]:
        """Reasons why it did not pass, failures first; empty when it did."""
        return reasons_of(self.findings)

    @property
    def not_verified(self) -> list[str]:
        """Caveats: findings that were not verified, and why."""
        return open_of(self.findings)

    @property
    def pins(self) -> str:
        """Flags of `truehalf convert` that keep the nodes at fault FP32; empty where none is known."""
        return pins_flags(self.place.node_block_list) if self.place else ""

    @property
    def suspects(self) -> Sequence[Suspect]:
        """Suspects, the likeliest first; empty where nothing was looked for."""
        return self.place.suspects if self.place else []

    @property
    def first_bad_node(self) -> str | None:
        """The node where it goes wrong."""
        if not self.suspects:
            named = (each.facts["node"] for each in self.findings if each.state == FAILED and "node" in each.facts)
            return next(named, None)
        return first_bad_node(self.suspects, failed=not self.passed)

    def to_json(self) -> JsonObject:
        """Convert the report for JSON; numbers that JSON does not have become "nan", "inf", "-inf"."""
        found = [finding.as_dict() for finding in self.findings]
        place = asdict(self.place) if self.place else None
        content: JsonObject = plain(
            {name: getattr(self, name) for name in (*_FIELDS, *_DERIVED)}
            | dict(self.measures)
            | {
                "status": "failed" if self.verdict == FAILED else "done",
                "findings": found,
                "outputs": {name: asdict(errors) for name, errors in self.outputs.items()},
                "place": place,
                "suspects": place["suspects"] if place else [],
                "checks": by_check(self.findings),
                "metrics": {one["gate"]: one["value"] for one in found if one["check"] == USER_METRICS},
            }
        )
        return content
