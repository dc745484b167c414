"""Report of a verification, of two files or of the last file of a chain, with its one JSON form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from truehalf.files import plain
from truehalf.io_spec.outputs import DETECTIONS, TENSORS
from truehalf.json_values import JsonObject
from truehalf.verification.chain.suggested_pins import SuggestedPins
from truehalf.verification.findings import FAILED, PASSED, Finding, by_check, open_of, reasons_of, verdict_of
from truehalf.verification.judging.judge import judged_outputs
from truehalf.verification.judging.user_metrics import CHECK as USER_METRICS
from truehalf.verification.localize.locate import Place, first_bad_node
from truehalf.verification.localize.suspects import Suspect
from truehalf.verification.localize.worst_sample import worst_sample
from truehalf.verification.measured import Measured
from truehalf.verification.metrics.classification import ClassAgreement
from truehalf.verification.metrics.detections import DetectionSummary
from truehalf.verification.metrics.output_errors import OutputErrors
from truehalf.verification.open_file import FP32_CPU, Ran
from truehalf.verification.pinning.as_argument import pins_flags
from truehalf.verification.stage_numbers import StageNumbers

_DERIVED = ("passed", "verdict", "reasons", "not_verified", "first_bad_node", "pins")
_COUNTS = ("matched_fraction", "reference", "matched", "missed", "extra", "label_flips")
_SPREADS = ("box_error_px", "score_error", "rank_error")
_LEVELS = ("p50", "p99", "max")
_SELF = ("self_ap50", "self_ap50_95", "low_self_ap50_95_drop")
_CLASSES = ("top1_agreement", "top5_agreement", "kl_max")


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
        left_out: samples that could not be read, and why.
        place: where it goes wrong, once that was looked for.
        first_bad_node: the name of the node where it goes wrong, or "OpType -> <first output>" where it has none; None
            when nothing was looked for, and in a file that passed unless its error is more than rounding explains.
        suspects: nodes that may cause it, the likeliest first.
        preprocessing: of images, as applied; None for arrays.
        proposed: I/O spec that was taken, as none is declared and outputs are plainly detections; None otherwise.
        stages: of a chain, each file in short.
        suggestion: further pins, searched and confirmed; None unless asked for.
        average_precision: of a chain, ap50 and what follows it.
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
    task: str
    outputs: Mapping[str, OutputErrors]
    detections: DetectionSummary | None
    classification: ClassAgreement | None
    tensor_rms: float | None
    evaluation: str
    provider: str
    reference_evaluation: str
    samples: int
    worst_sample: str | None
    left_out: Sequence[str] = ()
    place: Place | None = None
    preprocessing: JsonObject | None = None
    proposed: JsonObject | None = None
    plugins: Sequence[str] = ()
    average_precision: Mapping[str, float | None] = field(default_factory=dict)
    stages: Mapping[str, StageNumbers] = field(default_factory=dict)
    suggestion: SuggestedPins | None = None

    @property
    def verdict(self) -> str:
        """ "passed", "failed" or "not verified"."""
        return verdict_of(self.findings)

    @property
    def passed(self) -> bool:
        return self.verdict == PASSED

    @property
    def reasons(self) -> list[str]:
        """Why it did not pass, failures first; empty when it did."""
        return reasons_of(self.findings)

    @property
    def not_verified(self) -> list[str]:
        """What was not verified, and why."""
        return open_of(self.findings)

    @property
    def pins(self) -> str:
        """What keeps the nodes at fault FP32, as flags of `truehalf convert`; empty where none is known."""
        return pins_flags(self.place.node_block_list) if self.place else ""

    @property
    def suspects(self) -> Sequence[Suspect]:
        """The likeliest first; empty where nothing was looked for."""
        return self.place.suspects if self.place else []

    @property
    def first_bad_node(self) -> str | None:
        """The node where it goes wrong."""
        if not self.suspects:
            named = (each.facts["node"] for each in self.findings if each.state == FAILED and "node" in each.facts)
            return next(named, None)
        return first_bad_node(self.suspects, failed=not self.passed)

    def to_json(self) -> JsonObject:
        """The report for JSON; numbers that JSON does not have become "nan", "inf", "-inf"."""
        of_boxes: Mapping[str, Any] = self.detections or {}
        of_classes: Mapping[str, Any] = self.classification or {}
        errors = self.outputs.items()
        found = [finding.as_dict() for finding in self.findings]
        place = asdict(self.place) if self.place else {}
        content: JsonObject = plain(
            asdict(self)
            | {name: getattr(self, name) for name in _DERIVED}
            | {
                "status": "failed" if self.verdict == FAILED else "done",
                "findings": found,
                "suspects": place.get("suspects", []),
                "checks": by_check(self.findings),
                "metrics": {one["gate"]: one["value"] for one in found if one["check"] == USER_METRICS},
                "nan": sum(each.nan for _, each in errors),
                "inf": sum(each.inf for _, each in errors),
                "max_abs_error": {n: e.max_abs for n, e in errors if e.max_abs is not None},
            }
            | {name: (of_boxes or of_classes).get(name) for name in _COUNTS}
            | {f"{name}_{level}": (of_boxes.get(name) or {}).get(level) for name in _SPREADS for level in _LEVELS}
            | {name: of_boxes.get(name) for name in _SELF}
            | {name: of_classes.get(name) for name in _CLASSES}
            | dict(self.average_precision)
        )
        return content


def report_on_file(findings: Sequence[Finding], evaluation: str) -> Report:
    """The report on a file that fails as it lies on disk: nothing was run."""
    return Report(findings, TENSORS, {}, None, None, None, evaluation, "", FP32_CPU, 0, None)


def report_on(
    seen: Measured, findings: Sequence[Finding], ran: Ran, reference_evaluation: str, labelled: bool = False
) -> Report:
    """The report on a file, before it is looked for where it goes wrong.

    Args:
        labelled: whether the samples have true boxes.
    """
    is_usable = seen.task == DETECTIONS and not seen.untrained and seen.decodable
    worst = worst_sample(seen)
    return Report(
        findings=findings,
        task=seen.task,
        outputs=judged_outputs(seen, findings),
        detections={**seen.summary, **seen.self_precision(labelled)} if is_usable else None,
        classification=seen.classification,
        tensor_rms=seen.largest_rms,
        evaluation=ran.evaluation,
        provider=ran.provider,
        reference_evaluation=reference_evaluation,
        samples=sum(max(run.rows, 1) for run in seen.runs),
        worst_sample=worst[0].names[worst[1]] if worst else None,
    )
