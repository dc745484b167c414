"""Samples that a failed verification is localized on, the rule that they fail by, and the node at fault.

    a gate or shape fails    all samples, of which the worst are looked at, one by one
    else adversarial fails   the adversarial images, the same way

What fails at another batch alone has no such samples: its run is named, and a graph that mixes samples does that, no
rounding. Nor has a verdict that fails because verify.require names what was not verified.

verify.suggest: further pins that bring a failed file inside the gates. They are searched on the worst of these samples,
then a file that is converted with them is verified on all samples. Nothing is applied: the pins are printed and stored.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypedDict

import numpy as np

from truehalf.codes import coded
from truehalf.config.verification import VerifyConfig
from truehalf.conversion.report import Decision
from truehalf.data.samples import stacked
from truehalf.errors import StageError
from truehalf.ir.model_forms import ModelFile
from truehalf.verification.chain.reference import Reference
from truehalf.verification.chain.stage import OF_OUTPUTS, FileResult, Judge, on_images
from truehalf.verification.comparison import Comparison
from truehalf.verification.findings import FAILED, NOT_VERIFIED, Finding, reasons_of, verdict_of
from truehalf.verification.localize.both_files import BothFiles
from truehalf.verification.localize.locate import Place, place_of
from truehalf.verification.localize.node_errors import local_errors
from truehalf.verification.metrics.tensors import query_outputs
from truehalf.verification.open_file import BACKENDS, FP32_CPU, is_pessimistic, opened
from truehalf.verification.pinning.as_argument import pins_argument
from truehalf.verification.pinning.reconversion import Reconversion
from truehalf.verification.pinning.search import search_pins
from truehalf.verification.samples import worst_samples

_SAMPLES = 4  # the worst, looked at
_OF_OUTPUTS = {*OF_OUTPUTS, "nonfinite", "shapes"}


@dataclass(frozen=True)
class Failing:
    """Samples of a file that fails.

    Attributes:
        reference: the samples and what FP32 says of them.
        final: the file, compared on them.
        evaluation: that it failed in.
        of_images: they are the adversarial samples, which have a rule of their own.
    """

    reference: Reference
    final: Comparison
    evaluation: str
    of_images: bool = False

    @cached_property
    def worst(self) -> list[int]:
        """Positions of the samples that differ most, which are looked at."""
        return worst_samples(self.final.samples, _SAMPLES)

    def judge(self, comparison: Comparison) -> list[Finding]:
        """List the findings of a comparison on these samples."""
        if not self.of_images:
            return comparison.findings
        verdict = on_images(comparison)
        return [Finding("adversarial", verdict["state"], verdict["reason"])]

    def batches(self, file: ModelFile, fp32: ModelFile) -> list[dict[str, np.ndarray]]:
        """Feeds of those that are looked at, a run of each, as often as a fixed batch asks for it."""
        return [stacked([self.reference.samples[i]] * _copies(file, fp32)) for i in self.worst]

    def place(
        self,
        file: ModelFile,
        fp32: ModelFile,
        decisions: Iterable[Decision] | None = None,
        pinned: Sequence[str] = (),
    ) -> Place | None:
        """Locate the node at fault by the emulation that failed, by the plain one where another machine ran it; None
        for a file without FP16.

        Args:
            decisions: rows of decisions.json.
            pinned: entries of precision.node_block_list in force, which a selector repeats.

        Raises:
            StageError: as truehalf.verification.localize.locate.locate.
        """
        evaluation = self.evaluation
        if evaluation == FP32_CPU:
            return None
        count, first, copies = len(self.worst), self.reference.samples[self.worst[0]].name, _copies(file, fp32)
        looked_at = f"the worst {count} of {len(self.reference.names)} samples" if count > 1 else f"sample {first}"
        if copies > 1:
            looked_at += f" (repeated {copies} times: the batch is fixed)"
        if evaluation in BACKENDS:
            looked_at += f", in emulated FP16 (the file failed on {evaluation})"
        pessimistic = is_pessimistic(evaluation)
        files = BothFiles(fp32.model, file.model, decisions=decisions, pinned=pinned, pessimistic=pessimistic)
        return place_of(files, self.batches(file, fp32), query_outputs(self.reference.spec), first, looked_at)


def _copies(file: ModelFile, fp32: ModelFile) -> int:
    """Count the copies of a sample that one run takes: the fixed batch, else 1."""
    return file.fixed_batch or fp32.fixed_batch or 1


def failing_of(file: ModelFile, judge: Judge, final: FileResult, findings: Sequence[Finding]) -> Failing | None:
    """Find the samples that the final file fails on; None if nothing that was measured fails.

    Args:
        findings: on the file.

    Raises:
        StageError: when the file does not run on what it fails on.
    """
    reference, images, options, evaluation = judge.reference, judge.images, judge.options, final.ran.evaluation
    failed = {finding.check for finding in findings if finding.state == FAILED}
    if failed & _OF_OUTPUTS:
        return Failing(reference, final.comparison, evaluation)
    if "adversarial" in failed and isinstance(images, Reference):
        outputs = opened(file, options.evaluation.value).run_all(images.samples, options.batch)
        return Failing(images, images.compare(outputs, options, outputs_only=True), evaluation, of_images=True)
    return None


# --- further pins -----------------------------------------------------------------------------------------------------


class SuggestedPins(TypedDict):
    """Result of the search for pins.

    Attributes:
        status: "found", "not confirmed" or "none".
        sentence: the same in words.
        selectors: the pins for the command line; empty without.
        node_block_list: their entries.
        verdict: of a file converted with them, on all samples; None where there is no such file.
    """

    status: str
    sentence: str
    selectors: str
    node_block_list: list[str]
    verdict: str | None


def suggested_pins(
    fp32: ModelFile,
    last: ModelFile,
    failing: Failing,
    options: VerifyConfig,
    conversion: Reconversion,
    verify_again: Callable[[Path], list[Finding]],
) -> SuggestedPins:
    """Search pins and confirm them.

    Args:
        fp32: the file before the conversion.
        last: the final file.
        failing: its samples that fail, and the rule.
        verify_again: what is found of a file, on all samples.

    Raises:
        StageError: when the search cannot run.
    """
    part = failing.reference.subset(failing.worst)
    where = f"the worst {len(part.names)} samples"
    with tempfile.TemporaryDirectory(prefix="truehalf-pins-") as folder:
        path = Path(folder) / "model.onnx"

        def holds(nodes: Collection[str]) -> bool:
            conversion.convert(fp32.path, path, nodes)
            file = opened(ModelFile(path), options.evaluation.value)
            outputs = file.run_all(part.samples, options.batch)
            file.close()
            return verdict_of(failing.judge(part.compare(outputs, options))) != FAILED

        if holds(()):
            return _none(f"No further pin is needed for {where}: what fails does not show there.")
        pessimistic, batches = is_pessimistic(failing.evaluation), failing.batches(last, fp32)
        files = BothFiles(conversion.named(fp32.path), last.model, pessimistic=pessimistic)
        errors = local_errors(files, batches, keep=len(files.pairs))
        pins = search_pins(files, batches, query_outputs(part.spec), errors, holds)
        if not pins.effects:
            return _none(f"No pins help: on {where} the gates do not hold with every node in FP32, either.")
        try:
            conversion.convert(fp32.path, path, pins.effects)
            again = verify_again(path)
            verdict, confirmed = verdict_of(again), confirmation(again)
        except StageError as failure:
            verdict, confirmed = None, f"A file converted with them could not be verified: {failure}"
    pin_count = "1 more pin" if len(pins.effects) == 1 else f"{len(pins.effects)} more pins"
    short = "none can be left out" if pins.is_shortest else "a shorter list may do"
    return {
        "status": "not confirmed" if verdict in (None, FAILED) else "found",
        "sentence": f"{pin_count}, found in {pins.conversions} conversions on {where}; {short}. {confirmed}",
        "selectors": pins_argument("node_block_list", pins.entries, conversion.precision.node_block_list),
        "node_block_list": [*pins.entries],
        "verdict": verdict,
    }


def _none(sentence: str) -> SuggestedPins:
    return {"status": "none", "sentence": sentence, "selectors": "", "node_block_list": [], "verdict": None}


def confirmation(again: Sequence[Finding]) -> str:
    """Say in one sentence whether a file converted with the pins holds the gates on all samples."""
    if verdict_of(again) == FAILED:
        return f"A file converted with them fails on all samples: {reasons_of(again)[0]}."
    unknown = [each.facts["gate"] for each in again if "gate" in each.facts and each.state == NOT_VERIFIED]
    if unknown:
        open_gates = f"Whether a file converted with them holds {', '.join(unknown)} is open: there was no value"
        return coded("pins-open", f"{open_gates}. They were not applied.")
    return coded("pins-hold", "A file converted with them holds the gates on all samples. They were not applied.")
