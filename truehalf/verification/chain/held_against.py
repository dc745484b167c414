"""What the files of a chain are held against, and one of them measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypedDict

from truehalf.config.typed import plain
from truehalf.config.verification import VerifyConfig
from truehalf.files import read_json
from truehalf.ir.model_forms import ModelFile
from truehalf.json_values import JsonObject
from truehalf.verification.chain.adversarial import measure_adversarial
from truehalf.verification.chain.batches import measure_batches
from truehalf.verification.chain.reference import Reference
from truehalf.verification.chain.stage_results import FileResult, measure_file
from truehalf.verification.open_file import OpenFile, opened
from truehalf.verification.stage_facts import StageFacts

SUBSET = 64  # samples for the stages before the final file
# Options of the verdict, of searches and of the page, which change nothing that is measured of a file.
_NOT_MEASURING = {"first_samples", "metrics", "pictures", "profile", "require", "suggest", "suggest_runs"}


class HeldAgainst:
    """The FP32 model.

    Attributes:
        reference: beside the slimmed file, see Reference.beside.
        images: the reference on the adversarial samples, so, too, or why there is none.
        fp32: the slimmed file.
        options: see truehalf.verification.chain.chain.verify.
    """

    def __init__(self, reference: Reference, images: Reference | str, fp32: ModelFile, options: VerifyConfig) -> None:
        self.reference, self.fp32, self.options = reference.beside(fp32), fp32, options
        self.images = images if isinstance(images, str) else images.beside(fp32)

    def measured(self, model: ModelFile, count: int, sizes: Sequence[int]) -> FileResult:
        """A file on the first samples, on the adversarial ones and at these batch sizes."""
        size = model.fixed_batch or self.options.batch
        runs = -(-count // size) if size <= self.options.batch else 1  # a larger one may take all the memory there is
        file = opened(model, self.options.evaluation.value, runs)
        return measured_file(file, self.reference, self.images, self.options, count, sizes)

    def measured_on_all(self, model: ModelFile, sizes: Sequence[int]) -> FileResult:
        """A file on all samples, and at these batch sizes."""
        return self.measured(model, len(self.reference.names), sizes)

    def measured_on_first(self, model: ModelFile) -> StageFacts:
        """A file before the final one."""
        return self.measured(model, min(SUBSET, len(self.reference.names)), (1,)).facts


def measured_file(
    file: OpenFile,
    reference: Reference,
    images: Reference | str,
    options: VerifyConfig,
    count: int,
    sizes: Sequence[int],
) -> FileResult:
    """An open file, or an engine, on the first samples, on the adversarial ones and at these batch sizes.

    Args:
        images: the reference on the adversarial samples, or why there is none.
    """
    stage = measure_file(file, reference, count, options)
    facts: StageFacts = {
        **stage.facts,
        "adversarial": measure_adversarial(file, images, options),
        "batches": measure_batches(file, reference, stage, sizes, options),
    }
    return replace(stage, facts=facts)


class MeasuredFiles(TypedDict):
    """artifacts/reference/measured.json.

    Attributes:
        options: of the verification, those that change what is measured.
        files: facts by the file's digest (truehalf.ir.model_forms.ModelFile).
    """

    options: JsonObject
    files: dict[str, StageFacts]


def measure_files(
    reference: Reference, adversarial: Reference | str, fp32: Path, paths: Iterable[Path], options: VerifyConfig
) -> MeasuredFiles:
    """Measure the files before the final one, once for all precisions.

    Args:
        reference, options: see truehalf.verification.chain.chain.verify.
        adversarial: see truehalf.verification.chain.chain.Making.
        fp32: the slimmed file.
        paths: the files.
    """
    slimmed = ModelFile(fp32)
    held = HeldAgainst(reference, adversarial, slimmed, options)
    files = [slimmed if path == fp32 else ModelFile(path) for path in paths]
    return {"options": _measuring(options), "files": {file.digest: held.measured_on_first(file) for file in files}}


def measured_with(options: VerifyConfig, path: Path) -> dict[str, StageFacts]:
    """Facts by digest of the files that `measure_files` has measured; none if that was with other options, as after a
    changed gate: torch's outputs are not computed again for it.

    Args:
        path: of measured.json.
    """
    measured: MeasuredFiles = read_json(path)
    return measured["files"] if measured["options"] == _measuring(options) else {}


def _measuring(options: VerifyConfig) -> JsonObject:
    return {name: value for name, value in plain(options).items() if name not in _NOT_MEASURING}
