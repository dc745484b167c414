"""One file of a chain, or an engine, against the frozen reference: on the verification samples, on adversarial images,
and the same samples in other batches.

Adversarial images lie at the rim of the input range: a file must stay finite on them and find what the FP32 model
finds. They are no part of average precision or of the gates: no data set has them, and every camera meets a lens cap, a
lamp or a broken sensor once.

A graph may be right at the batch that it was traced or measured with and wrong at another: a number of samples that was
baked into a Reshape, a mask that is spread over the batch, a reduction over the wrong axis. With B(i) the outputs on
sample i in the run that the reference was compared with, for each size n:

    mixed     different samples, n in a run      row k  holds what  B(i_k)  holds
    copies    one sample, n times in a run       row k  holds what  B(i_0)  holds

within the limits of the gates. Sums inside a node may be accumulated in another order at another batch, and FP16 then
rounds some values to the other side; so "the same" is no equality of bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from truehalf.codes import coded, uncoded
from truehalf.config.typed import plain
from truehalf.config.verification import VerifyConfig
from truehalf.errors import StageError, some_of
from truehalf.files import read_json
from truehalf.ir.model_forms import ModelFile
from truehalf.json_values import JsonObject
from truehalf.verification.activation_memory import too_large
from truehalf.verification.chain.reference import Outputs, Reference
from truehalf.verification.comparison import UNLIKE, Agreement, Comparison
from truehalf.verification.findings import FAILED, NOT_VERIFIED, Finding, by_check, worst_of
from truehalf.verification.open_file import OpenFile, Ran, opened
from truehalf.verification.runs import UnevenShapes
from truehalf.verification.samples import worst_samples

SUBSET = 64  # samples for the stages before the final file
OF_OUTPUTS = ("detections", "average_precision", "classes", "tensors")  # a model has those of what it outputs
HEADLINE = (
    *("ap50", "ap50_95", "ap50_95_fp32", "self_ap50_95", "matched_fraction", "box_error_px_p99", "score_error_p99"),
    *("top1_agreement", "tensor_rms", "nonfinite", "max_abs_error"),
)
# Options of the verdict, of searches and of the page, which change nothing that is measured of a file.
_NOT_MEASURING = {"first_samples", "metrics", "pictures", "profile", "require", "suggest", "suggest_runs"}
StageFacts = dict[str, Any]  # measures of a comparison, and how the file ran; see FileResult.facts


@dataclass(frozen=True)
class FileResult:
    """One file, measured.

    Attributes:
        comparison: on the verification samples.
        outputs: the file's there, [samples, ...] by name; empty where their shapes vary from run to run.
        ran: how it ran.
        batch: samples of a run.
        shapes: findings on shapes that vary.
        adversarial: on the adversarial samples.
        batches: state, reason and `sizes`, an Agreement for each batch size.
    """

    comparison: Comparison
    outputs: Outputs
    ran: Ran
    batch: int
    shapes: list[Finding]
    adversarial: Agreement
    batches: dict[str, Any]

    @property
    def facts(self) -> StageFacts:
        """Return the measures as JSON."""
        how = {"evaluation": self.ran.evaluation, "provider": self.ran.provider, "batch": self.batch}
        broken = [each.reason for each in (*self.shapes, *self.comparison.findings) if "wrong-shape" in each.reason]
        said = {"reason": "; ".join(broken)} if broken else {}
        return {**self.comparison.measures, **how, **said, "adversarial": self.adversarial, "batches": self.batches}

    def findings(self, require: Sequence[str]) -> list[Finding]:
        """All on a file: what is wrong with shapes comes first, as it explains the others; then outputs, how it ran,
        other conditions, and checks that are required and open.
        """
        images = f"adversarial images: {self.adversarial['reason']}"
        found = [*self.shapes, *self.comparison.findings, *self.ran.findings()]
        found.append(Finding("batch", self.batches["state"], self.batches["reason"], decides=False))
        found.append(Finding("adversarial", self.adversarial["state"], images, decides=False))
        return found + unmet(found, require)


def unmet(findings: Sequence[Finding], required: Sequence[str]) -> list[Finding]:
    """List a failure for each required check that was not verified."""
    rows = by_check(findings)
    reasons = {row["check"]: row["reason"] for row in rows if row["state"] == NOT_VERIFIED}
    has = {row["check"] for row in rows}
    reasons |= {name: "the model outputs nothing of the kind" for name in OF_OUTPUTS if name not in has}
    named = {name: f"verify.require names {name}, not verified: {uncoded(reasons[name])}" for name in reasons}
    return [Finding("require", FAILED, coded("required-open", named[name])) for name in named if name in required]


@dataclass(frozen=True)
class Judge:
    """What the files of a chain are compared with.

    Attributes:
        reference: frozen outputs of the FP32 model.
        images: the same on the adversarial samples, or why there are none.
        options: thresholds, evaluation, gates.
    """

    reference: Reference
    images: Reference | str
    options: VerifyConfig

    def beside(self, fp32: ModelFile) -> Judge:
        """Add the slimmed FP32 file, which is asked how half a step of the input moves outputs."""
        images = self.images if isinstance(self.images, str) else replace(self.images, file=fp32)
        return replace(self, reference=replace(self.reference, file=fp32), images=images)

    def of_file(self, model: ModelFile, sizes: Sequence[int], count: int | None = None) -> FileResult:
        """Measure a file on the first samples (None: all), on the adversarial ones and at these batch sizes."""
        count = len(self.reference.names) if count is None else min(count, len(self.reference.names))
        size = model.fixed_batch or self.options.batch
        runs = -(-count // size) if size <= self.options.batch else 1  # a larger one may take all the memory there is
        file = opened(model, self.options.evaluation.value, runs)
        judge = replace(self, reference=self.reference.subset(range(count)))
        return judge.of_open_file(file, sizes)

    def of_open_file(self, file: OpenFile, sizes: Sequence[int]) -> FileResult:
        """Measure an open file, or an engine."""
        reference, batch = self.reference, self.options.batch
        shapes: list[Finding] = []
        try:
            outputs = file.run_all(reference.samples, batch)
        except UnevenShapes as error:
            outputs = {}
            shapes.append(Finding("shapes", FAILED, str(error), no_node=True))
        count = len(reference.names)
        comparison = reference.compare(outputs, self.options, file)
        result = FileResult(
            comparison=comparison,
            outputs=outputs,
            ran=file.ran,
            batch=file.file.fixed_batch or min(batch, count),
            shapes=shapes,
            adversarial=self._on_images(file),
            batches={},
        )
        return replace(result, batches=measure_batches(file, reference, result, sizes, self.options), ran=file.ran)

    def _on_images(self, file: OpenFile) -> Agreement:
        """Compare a file with the FP32 model on the adversarial samples."""
        if isinstance(self.images, str):
            return {"state": NOT_VERIFIED, "reason": self.images}
        try:
            outputs = file.run_all(self.images.samples, self.options.batch)
        except StageError as error:
            return {"state": FAILED, "reason": _not_run(error)}
        return on_images(self.images.compare(outputs, self.options, file, outputs_only=True))

    def measured(self, paths: Iterable[Path]) -> JsonObject:
        """Measure the files before the final one, once for all precisions: {options, files: facts by digest}."""
        files = [ModelFile(path) for path in dict.fromkeys(paths)]
        facts = {file.digest: self.of_file(file, (1,), SUBSET).facts for file in files}
        return {"options": _measuring(self.options), "files": facts}


def measured_with(options: VerifyConfig, path: Path) -> Mapping[str, StageFacts]:
    """Read the facts that `Judge.measured` wrote, by digest of the file; none if they were measured with other options,
    as after a changed gate: torch's outputs are not computed again for it.

    Args:
        path: of measured.json.
    """
    measured = read_json(path)
    return cast("Mapping[str, StageFacts]", measured["files"]) if measured["options"] == _measuring(options) else {}


def _measuring(options: VerifyConfig) -> JsonObject:
    return {name: value for name, value in plain(options).items() if name not in _NOT_MEASURING}


def on_images(comparison: Comparison) -> Agreement:
    """Judge outputs on adversarial samples; the samples with values that are not finite are named."""
    found = comparison.agreement(empty_is_same=True)
    if bad := [row.sample for row in comparison.samples if row.nonfinite]:
        found["reason"] += f" (NaN or Inf on {some_of(bad)})"
    return found


def _not_run(error: StageError) -> str:
    return str(error) if isinstance(error, UnevenShapes) else f"the file does not run: {error}"


# --- batches ----------------------------------------------------------------------------------------------------------


def measure_batches(
    file: OpenFile, reference: Reference, result: FileResult, sizes: Sequence[int], options: VerifyConfig
) -> dict[str, Any]:
    """Run a file with each number of samples and compare it with its outputs in `result`.

    The samples are those with the most detections among the ones that `result` has seen.
    """
    if not result.comparison.are_alike:
        return {"state": NOT_VERIFIED, "reason": UNLIKE, "sizes": []}
    own = replace(reference, outputs=result.outputs, truth=None, kept_precision=None)
    counts = [int((each.scores >= options.score_threshold).sum()) for each in reference.detections]
    busiest = sorted(range(len(reference.names)), key=lambda i: -counts[i] if counts else 0)
    samples = [busiest[i % len(busiest)] for i in range(max(sizes))]
    rows: list[Agreement] = []
    for size in sizes:
        fixed, large = file.file.fixed_batch, None
        if size > result.batch:
            large = too_large(file.file.model, reference.samples[0], size, options.memory_gb)
        if fixed not in (None, size):
            large = f"the file's batch is fixed to {fixed}"
        row: Agreement = {"state": NOT_VERIFIED, "reason": large} if large else _at(file, own, samples, size, options)
        rows.append({"batch": size, **row})
    state = worst_of(row["state"] for row in rows)
    by_reason: dict[str, list[int]] = {}
    for row in rows:
        if row["state"] == state:
            by_reason.setdefault(row["reason"], []).append(row["batch"])
    reasons = [f"batch {', '.join(map(str, sizes))}: {reason}" for reason, sizes in by_reason.items()]
    return {"state": state, "reason": "; ".join(reasons), "sizes": rows}


def _at(file: OpenFile, own: Reference, samples: Sequence[int], size: int, options: VerifyConfig) -> Agreement:
    """Compare runs of `size` samples with what the file puts out of each."""
    mixed = [*samples, *samples][: size * -(-len(samples) // size)]  # full batches only
    part = own.subset(mixed + (mixed[:1] * size if size > 1 else []))
    try:
        outputs = file.run_all(part.samples, size, alone=size > options.batch)
    except StageError as error:
        return {"state": FAILED, "reason": _not_run(error), "samples": part.names[:size]}
    comparison = part.compare(outputs, options, outputs_only=True)
    found = comparison.agreement()
    found.pop("samples", None)
    if found["state"] == FAILED:
        (differs,) = worst_samples(comparison.samples, 1)
        start = differs // size * size
        found["samples"] = part.names[start : start + size]
    return found
