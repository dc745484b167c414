"""What a failed verification is looked into with: the samples that fail, and the rule that they fail by.

    a gate or shape fails    all samples, of which the worst are looked at, one by one
    else adversarial fails   the adversarial images that fail, one by one
    else batch fails         the run of several samples that differs, as it ran

A verdict that fails because verify.require names what was not verified has no such samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from truehalf.config.verification import Evaluation, VerifyConfig
from truehalf.data.samples import stacked
from truehalf.ir.model_forms import ModelFile
from truehalf.verification.chain import adversarial
from truehalf.verification.chain.reference import Outputs, Reference
from truehalf.verification.chain.stage_results import StageResult, measure, sample_facts
from truehalf.verification.findings import FAILED, Finding
from truehalf.verification.localize.locate import find_suspects, locate
from truehalf.verification.metrics.tensors import query_outputs
from truehalf.verification.open_file import FP32_CPU, opened

Judge = Callable[[Reference, StageResult], list[Finding]]


@dataclass(frozen=True)
class Failing:
    """Samples of a file that fail.

    Attributes:
        reference: the samples and what FP32 says of them.
        final: the file, measured on them.
        judge: the rule.
        together: they run as one batch.
    """

    reference: Reference
    final: StageResult
    judge: Judge
    together: bool = False


def failing_of(
    file: ModelFile,
    reference: Reference,
    final: StageResult,
    findings: Sequence[Finding],
    images: Reference | str,
    options: VerifyConfig,
    judge: Judge,
) -> Failing | None:
    """What the final file fails on; None where nothing that was measured fails.

    Args:
        findings: on the file.
        images: the reference on the adversarial samples.
        judge: the gates of a stage.

    Raises:
        StageError: when the file does not run on what it fails on.
    """
    failures = [finding for finding in findings if finding.state == FAILED]
    if final.facts["shape_faults"] or any("gate" in finding.facts for finding in failures):
        return Failing(reference, final, judge)
    failed = {finding.check for finding in failures}
    if "adversarial" in failed and isinstance(images, Reference):
        return _images(file, images, final, options)
    if "batch" in failed:
        return _batch(file, reference, final, options, judge)
    return None


def _images(file: ModelFile, images: Reference, final: StageResult, options: VerifyConfig) -> Failing:
    outputs = opened(file, options.evaluation.value).run_all(images.samples, options.batch)
    rows = sample_facts(images, measure(images, outputs, options))
    bad = [i for i, row in enumerate(rows) if row["nonfinite"] or row["missed"] or row["extra"]] or [*range(len(rows))]
    part = images.subset(bad)

    def judge(reference: Reference, stage: StageResult) -> list[Finding]:
        found = adversarial.judged(reference, stage, options)
        return [Finding("adversarial", found["state"], found["reason"])]

    return Failing(part, _measured(part, {name: value[bad] for name, value in outputs.items()}, final, options), judge)


def _batch(file: ModelFile, reference: Reference, final: StageResult, options: VerifyConfig, judge: Judge) -> Failing:
    row = next(row for row in final.facts["batches"]["sizes"] if row["state"] == FAILED)
    part = reference.subset([reference.names.index(name) for name in row["samples"]])
    outputs = opened(file, options.evaluation.value).run_all(part.samples, row["batch"])
    return Failing(part, _measured(part, outputs, final, options), judge, together=True)


def _measured(part: Reference, outputs: Outputs, final: StageResult, options: VerifyConfig) -> StageResult:
    stage = measure(part, outputs, options)
    return replace(stage, facts={"evaluation": final.facts["evaluation"]} | stage.facts)


def place_of(
    failing: Failing,
    file: ModelFile,
    fp32: ModelFile,
    decisions: Iterable[Mapping[str, Any]] | None,
    pinned: Sequence[str] = (),
) -> dict[str, Any] | None:
    """Where a file goes wrong, see truehalf.verification.localize.locate.locate; None for a file without
    FP16.

    Raises:
        StageError: when the files cannot be held side by side.
    """
    if not failing.together:
        return locate(file, fp32, failing.reference, failing.final, decisions, pinned=pinned)
    evaluation = failing.final.facts["evaluation"]
    if evaluation == FP32_CPU:
        return None
    samples = list(failing.reference.samples)
    suspects = find_suspects(
        fp32.model,
        file.model,
        stacked(samples),
        decisions=decisions,
        queries=query_outputs(failing.reference.spec),
        pinned=pinned,
        pessimistic=evaluation == Evaluation.emulated_fp16_pessimistic.value,
    )
    what = suspects[0].sentence if suspects else "no node differs from the FP32 file's"
    return {
        "sample": samples[0].name,
        "sentence": f"in a run of {len(samples)} samples: {what}",
        "nonfinite": [],
        "suspects": [asdict(each) for each in suspects],
    }
