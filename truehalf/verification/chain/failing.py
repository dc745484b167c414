"""Samples that a failed verification is localized on, the rule that they fail by, and the node at fault.

    a gate or shape fails    all samples, of which the worst are looked at, one by one
    else adversarial fails   the adversarial images, the same way
    else batch fails         the run of several samples that differs, as it ran

A verdict that fails because verify.require names what was not verified has no such samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from truehalf.config.verification import VerifyConfig
from truehalf.conversion.report import Decision
from truehalf.data.samples import stacked
from truehalf.ir.model_forms import ModelFile
from truehalf.verification.chain import adversarial
from truehalf.verification.chain.reference import Reference
from truehalf.verification.chain.stage_results import StageResult, measure
from truehalf.verification.findings import FAILED, Finding
from truehalf.verification.judging.checks import OF_OUTPUTS
from truehalf.verification.localize.both_files import BothFiles
from truehalf.verification.localize.locate import Place, place_of
from truehalf.verification.localize.worst_sample import facts_by_sample, worst_samples
from truehalf.verification.metrics.tensors import query_outputs
from truehalf.verification.open_file import BACKENDS, FP32_CPU, is_pessimistic, opened

_SAMPLES = 4  # the worst, looked at
_OF_OUTPUTS = {*OF_OUTPUTS, "nonfinite"}
Judge = Callable[[StageResult], list[Finding]]


@dataclass(frozen=True)
class Failing:
    """Samples of a file that fails.

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

    @cached_property
    def worst(self) -> list[int]:
        """Positions of those that are looked at: of a run all, in their order, else those that differ most."""
        rows = facts_by_sample(self.final.seen)
        return [*range(len(rows))] if self.together else worst_samples(rows, _SAMPLES)

    def batches(self, file: ModelFile, fp32: ModelFile) -> list[dict[str, np.ndarray]]:
        """Feeds of those that are looked at: one run, or a run of each, as often as a fixed batch asks for it."""
        samples = [self.reference.samples[i] for i in self.worst]
        return [stacked(samples)] if self.together else [stacked([each] * _copies(file, fp32)) for each in samples]

    def place(
        self,
        file: ModelFile,
        fp32: ModelFile,
        decisions: Iterable[Decision] | None = None,
        pinned: Sequence[str] = (),
    ) -> Place | None:
        """Where the file goes wrong, by the emulation that failed, and by the plain one where another machine ran it;
        None for a file without FP16.

        Args:
            decisions: rows of decisions.json.
            pinned: entries of precision.node_block_list in force, which a selector repeats.

        Raises:
            StageError: as truehalf.verification.localize.locate.locate.
        """
        evaluation = self.final.facts["evaluation"]
        if evaluation == FP32_CPU:
            return None
        count, first, copies = len(self.worst), self.reference.samples[self.worst[0]].name, _copies(file, fp32)
        looked_at = f"the worst {count} of {len(self.reference.names)} samples" if count > 1 else f"sample {first}"
        if self.together:
            looked_at = f"a run of {count} samples"
        elif copies > 1:
            looked_at += f" (repeated {copies} times: the batch is fixed)"
        if evaluation in BACKENDS:
            looked_at += f", in emulated FP16 (the file failed on {evaluation})"
        pessimistic = is_pessimistic(evaluation)
        files = BothFiles(fp32.model, file.model, decisions=decisions, pinned=pinned, pessimistic=pessimistic)
        return place_of(files, self.batches(file, fp32), query_outputs(self.reference.spec), first, looked_at)


def _copies(file: ModelFile, fp32: ModelFile) -> int:
    """How often a sample goes into a run."""
    return file.fixed_batch or fp32.fixed_batch or 1


def failing_of(
    file: ModelFile,
    reference: Reference,
    final: StageResult,
    findings: Sequence[Finding],
    images: Reference | str,
    options: VerifyConfig,
) -> Failing | None:
    """What the final file fails on; None where nothing that was measured fails.

    Args:
        findings: on the file.
        images: the reference on the adversarial samples.

    Raises:
        StageError: when the file does not run on what it fails on.
    """

    def measured(part: Reference, batch: int) -> StageResult:
        stage = measure(part, opened(file, options.evaluation.value).run_all(part.samples, batch), options)
        return replace(stage, facts={"evaluation": final.facts["evaluation"], **stage.facts})

    failed = {finding.check for finding in findings if finding.state == FAILED}
    if final.facts["shape_faults"] or failed & _OF_OUTPUTS:
        return Failing(reference, final, StageResult.judged)
    if "adversarial" in failed and isinstance(images, Reference):
        return Failing(images, measured(images, options.batch), _judged_images)
    if "batch" in failed:
        row = next(row for row in final.facts["batches"]["sizes"] if row["state"] == FAILED)
        part = reference.subset([reference.names.index(name) for name in row["samples"]])
        return Failing(part, measured(part, row["batch"]), StageResult.judged, together=True)
    return None


def _judged_images(stage: StageResult) -> list[Finding]:
    found = adversarial.judged(stage)
    return [Finding("adversarial", found["state"], found["reason"])]
