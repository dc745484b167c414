"""One file of the chain, run and measured against the frozen reference."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from truehalf.config.verification import VerifyConfig
from truehalf.io_spec.decode import Detections
from truehalf.io_spec.outputs import DETECTIONS, task_of
from truehalf.verification.chain.reference import Outputs, Reference
from truehalf.verification.findings import Finding
from truehalf.verification.judging.checks import of_conditions, shape_findings, unmet
from truehalf.verification.judging.detections import Drop
from truehalf.verification.judging.judge import findings_on, judge
from truehalf.verification.measured import Measured
from truehalf.verification.metrics.decoded import NOTHING
from truehalf.verification.metrics.precision import AP50_MIN, NO_DETECTOR, precision, why_no_drop
from truehalf.verification.open_file import OpenFile, Ran
from truehalf.verification.output_shapes import UNLIKE, shape_problems
from truehalf.verification.runs import Arrays, UnevenShapes
from truehalf.verification.stage_facts import StageFacts
from truehalf.verification.stage_numbers import StageNumbers


@dataclass(frozen=True)
class StageResult:
    """Outputs, measured.

    Attributes:
        facts: what was measured.
        seen: its outputs beside the reference's, one run.
    """

    facts: StageFacts
    seen: Measured

    @property
    def outputs(self) -> Arrays:
        """[samples, ...] by name, floats as float32."""
        return self.seen.runs[0].candidate

    @property
    def found(self) -> list[Detections]:
        """Its detections, per sample; nothing where its outputs have other shapes."""
        return [found for _, found in self.seen.found] or [NOTHING] * self.seen.runs[0].rows

    @property
    def drop(self) -> Drop | None:
        """Of average precision against true labels; None without."""
        if not self.facts["labelled"]:
            return None
        reasons = self.facts["reasons"]
        why = reasons.get("detections") if self.seen.meaningless else reasons.get("average precision")
        return Drop(precision_drop(self.facts), why or "")

    def judged(self) -> list[Finding]:
        """See truehalf.verification.judging.judge."""
        return judge(self.seen, self.drop)


@dataclass(frozen=True)
class FileResult(StageResult):
    """One file of the chain.

    Attributes:
        ran: how it ran.
    """

    ran: Ran

    def findings(self, options: VerifyConfig) -> list[Finding]:
        """All on the final file of a chain: what is wrong with shapes comes first, as it explains the others; then
        outputs, checks, what is required.
        """
        facts = self.facts
        wrong = [*facts["shape_faults"], *filter(None, [facts["unrounded_shapes"]])]
        found = findings_on(self.seen, self.ran, shape_findings(wrong, facts["shapes_unknown"]), self.drop)
        found += of_conditions(facts)
        return found + unmet(found, options.require)


def measure_file(file: OpenFile, reference: Reference, count: int, options: VerifyConfig) -> FileResult:
    """Run a file on the first `count` samples and measure it."""
    varying: list[str] = []
    first, expected = reference.samples[:count], {name: reference.outputs[name][:count] for name in reference.outputs}
    try:
        outputs = file.run_all(first, options.batch)
    except UnevenShapes as error:
        outputs, varying = {}, [str(error)]
    stage = measure(reference, outputs, options, count, file)
    model = None if reference.file is None else reference.file.model
    unrounded, unknown = file.unrounded_shapes(
        expected, outputs, lambda file: file.run_all(first, options.batch), f"{count} samples", model
    )
    facts: StageFacts = {
        **stage.facts,
        "evaluation": file.evaluation,
        "provider": file.runner.provider,
        "batch": file.file.fixed_batch or min(options.batch, count),
        "unrounded_shapes": unrounded,
        "shapes_unknown": unknown,
        "shape_faults": stage.facts["shape_faults"] + varying,
    }
    return FileResult(facts, stage.seen, file.ran)


def measure(
    reference: Reference,
    outputs: Outputs,
    options: VerifyConfig,
    samples: int | None = None,
    file: OpenFile | None = None,
) -> StageResult:
    """Hold outputs on the first samples of the reference against it.

    Args:
        samples: how many; None: all.
        file: see Reference.measured.
    """
    count = samples or len(reference.names)
    seen = reference.measured(outputs, options, count, file)
    run = seen.runs[0]
    expected = run.reference
    problems = shape_problems(expected, outputs, reference.spec)
    detector, errors = task_of(reference.spec) == DETECTIONS, seen.errors.items()
    nan = sum(int(np.isnan(value).sum()) for value in outputs.values())
    inf = sum(int(np.isinf(value).sum()) for value in outputs.values())
    unusable = reference.unusable or (UNLIKE if detector and not seen.decodable else None)
    detections = seen.summary if detector and not unusable else None
    usable = replace(reference, unusable=unusable, kept_precision=None) if unusable else reference
    found_precision = precision(usable, [candidate for _, candidate in seen.found])
    precision_fp32 = usable.precision(count)
    no_drop = found_precision["reason"] or why_no_drop(precision_fp32["ap50"])
    reasons = {
        "detections": (detections or {}).get("reason") if detector else NO_DETECTOR,
        "average precision": no_drop,
    }
    if unusable:
        reasons["detections"] = unusable
    against_fp32 = seen.self_precision(labelled=reference.truth is not None)
    facts: StageFacts = {
        "samples": count,
        "labelled": reference.truth is not None,
        "shape_faults": problems,
        "nan": nan,
        "inf": inf,
        "nonfinite": nan + inf,
        "max_abs_error": {name: each.max_abs for name, each in errors if each.max_abs is not None},
        "detections": detections,
        "tensor_rms": seen.largest_rms,
        "classification": seen.classification,
        "ap50": found_precision["ap50"],
        "ap50_95": found_precision["ap50_95"],
        "self_ap50": against_fp32["self_ap50"],
        "self_ap50_95": against_fp32["self_ap50_95"],
        "self_ap50_95_drop": against_fp32["self_ap50_95_drop"],
        "low_self_ap50_95_drop": against_fp32["low_self_ap50_95_drop"],
        "ap50_fp32": precision_fp32["ap50"],
        "ap50_95_fp32": precision_fp32["ap50_95"],
        "reasons": {what: why for what, why in reasons.items() if why},
    }
    return StageResult(facts, seen)


def precision_drop(facts: StageFacts) -> float | None:
    """AP50-95 of the reference minus that of the file; None where one was not measured, or the reference finds next to
    none of the true boxes.
    """
    found, before, after = facts["ap50_fp32"], facts["ap50_95_fp32"], facts["ap50_95"]
    return None if found is None or found < AP50_MIN or before is None or after is None else before - after


def headline(facts: StageFacts) -> StageNumbers:
    """The numbers of a stage that fit in a line."""
    detections = facts["detections"] or {}
    box, score = detections.get("box_error_px"), detections.get("score_error")
    return {
        "ap50": facts["ap50"],
        "ap50_95": facts["ap50_95"],
        "ap50_95_fp32": facts["ap50_95_fp32"],
        "self_ap50_95": facts["self_ap50_95"],
        "matched_fraction": detections.get("matched_fraction"),
        "box_error_px_p99": box["p99"] if box else None,
        "score_error_p99": score["p99"] if score else None,
        "top1_agreement": (facts["classification"] or {}).get("top1_agreement"),
        "tensor_rms": facts["tensor_rms"],
        "nonfinite": facts["nonfinite"],
        "max_abs_error": facts["max_abs_error"],
    }
