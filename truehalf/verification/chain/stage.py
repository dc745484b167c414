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
from truehalf.verification.chain.reference import Reference
from truehalf.verification.comparison import UNLIKE, Agreement, Comparison
from truehalf.verification.findings import FAILED, NOT_VERIFIED, Finding, by_check, worst_of
from truehalf.verification.open_file import OpenFile, opened
from truehalf.verification.runs import joined
from truehalf.verification.samples import worst_samples

SUBSET = 64  # samples for the stages before the final file
OF_OUTPUTS = ("detections", "average_precision", "classes", "tensors")  # a model has those of what it outputs
HEADLINE = (
    *("ap50", "ap50_95", "ap50_95_fp32", "self_ap50_95", "matched_fraction", "box_error_px_p99", "score_error_p99"),
    *("top1_agreement", "tensor_rms", "nonfinite", "max_abs_error"),
)
# Options of the verdict, of searches and of the page, which change nothing that is measured of a file.
_NOT_MEASURING = {"first_samples", "metrics", "pictures", "require"}
StageFacts = dict[str, Any]  # measures of a comparison, and how the file ran; see FileResult.facts


@dataclass(frozen=True)
class FileResult:
    """One file, measured.

    Attributes:
        comparison: on the verification samples.
        file: as it ran.
        batch: samples of a run.
        adversarial: on the adversarial samples.
        on_images: the same; None where nothing was compared there.
        batches: state, reason and `sizes`, an Agreement for each batch size.
    """

    comparison: Comparison
    file: OpenFile
    batch: int
    adversarial: Agreement
    on_images: Comparison | None
    batches: dict[str, Any]

    @property
    def facts(self) -> StageFacts:
        """Return the measures as JSON."""
        how = {"evaluation": self.file.evaluation, "provider": self.file.provider, "batch": self.batch}
        broken = [each.reason for each in self.comparison.findings if "wrong-shape" in each.reason]
        said = {"reason": "; ".join(broken)} if broken else {}
        return {**self.comparison.measures, **how, **said, "adversarial": self.adversarial, "batches": self.batches}

    def findings(self, require: Sequence[str]) -> list[Finding]:
        """List findings on a file: on outputs, how it ran, other conditions, and checks that are required and open."""
        images = f"adversarial images: {self.adversarial['reason']}"
        found = [*self.comparison.findings, *self.file.findings()]
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
        options: thresholds, evaluation, gates; batch: so many samples that a run fits into memory.
    """

    reference: Reference
    images: Reference | str
    options: VerifyConfig

    def first(self) -> Judge:
        """Select the first samples, as many as the options want."""
        count = len(self.reference.names)
        return replace(self, reference=self.reference.subset(range(min(count, self.options.first_samples or count))))

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
        result = replace(self, reference=self.reference.subset(range(count))).of_open_file(file, sizes)
        file.close()
        return result

    def of_open_file(self, file: OpenFile, sizes: Sequence[int]) -> FileResult:
        """Measure an open file, or an engine."""
        reference, batch = self.reference, file.file.fixed_batch or self.options.batch
        runs = reference.runs(file.run, batch, f"verify: {file.file.path.parent.name}", file.lanes)
        comparison = reference.compare(runs, self.options, file)
        adversarial, on_images = self._on_images(file)
        batch = min(batch, len(reference.names)) if file.file.fixed_batch is None else batch
        batches: dict[str, Any] = {"state": NOT_VERIFIED, "reason": UNLIKE, "sizes": []}
        if comparison.are_alike:
            outputs = joined([{name: run.candidate[name] for name in run.reference} for run in runs])
            own = replace(reference, outputs=outputs, truth=None, kept_precision=None)
            batches = _measure_batches(file, own, batch, sizes, self.options)
        return FileResult(comparison, file, batch, adversarial, on_images, batches)

    def _on_images(self, file: OpenFile) -> tuple[Agreement, Comparison | None]:
        """Compare a file with the FP32 model on the adversarial samples; those with NaN or Inf are named."""
        if isinstance(self.images, str):
            return {"state": NOT_VERIFIED, "reason": self.images}, None
        try:
            runs = self.images.runs(file.run, file.file.fixed_batch or self.options.batch, "verify: adversarial images")
        except StageError as error:
            return {"state": FAILED, "reason": _not_run(error)}, None
        comparison = self.images.compare(runs, self.options, file, outputs_only=True)
        found = comparison.agreement(empty_is_same=True)
        if bad := [row.sample for row in comparison.samples if row.nonfinite]:
            found["reason"] += f" (NaN or Inf on {some_of(bad)})"
        return found, comparison

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


def _not_run(error: StageError) -> str:
    return f"the file does not run: {error}"


# --- batches ----------------------------------------------------------------------------------------------------------


def _measure_batches(
    file: OpenFile, own: Reference, batch: int, sizes: Sequence[int], options: VerifyConfig
) -> dict[str, Any]:
    """Run a file with each number of samples and compare it with its own outputs in runs of `batch`.

    The samples are those with the most detections.
    """
    counts = [int((each.scores >= options.score_threshold).sum()) for each in own.detections]
    busiest = sorted(range(len(own.names)), key=lambda i: -counts[i] if counts else 0)
    samples = [busiest[i % len(busiest)] for i in range(max(sizes))]
    rows: list[Agreement] = []
    for size in sizes:
        fixed, large = file.file.fixed_batch, None
        if size > batch:
            large = too_large(file.file.model, own.samples[0], size, options.memory_gb)
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
        # A larger run than that of the comparison may take all the memory there is.
        runs = part.runs(file.run, size, f"verify: batch {size}", 1 if size > options.batch else file.lanes)
    except StageError as error:
        return {"state": FAILED, "reason": _not_run(error), "samples": part.names[:size]}
    comparison = part.compare(runs, options, outputs_only=True)
    found = comparison.agreement()
    found.pop("samples", None)
    if found["state"] == FAILED:
        (differs,) = worst_samples(comparison.samples, 1)
        start = differs // size * size
        found["samples"] = part.names[start : start + size]
    return found
