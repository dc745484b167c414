"""The same samples in other batches: a file must find the same in them.

A graph may be right at the batch that it was traced or measured with and wrong at another: a number of samples that was
baked into a Reshape, a mask that is spread over the batch, a reduction over the wrong axis. With B(i) the detections
on sample i in the run that the reference was compared with, for each size n:

    mixed     different samples, n in a run      row k  finds what  B(i_k)  holds
    copies    one sample, n times in a run       row k  finds what  B(i_0)  holds

within the limits of the gates; other outputs are what B outputs, within theirs. Sums inside a node may be accumulated
in another order at another batch, and FP16 then rounds some values to the other side; so "the same" is no equality of
bits.
"""

from __future__ import annotations

from collections.abc import Sequence

from truehalf.codes import coded
from truehalf.config.verification import VerifyConfig
from truehalf.errors import StageError
from truehalf.verification.activation_memory import too_large
from truehalf.verification.chain.reference import Reference
from truehalf.verification.chain.stage_results import StageResult
from truehalf.verification.findings import FAILED, NOT_VERIFIED, VERIFIED, worst_of
from truehalf.verification.judging.judge import same_outputs
from truehalf.verification.localize.worst_sample import facts_by_sample, worst_samples
from truehalf.verification.metrics.plain_outputs import errors_by_sample
from truehalf.verification.open_file import OpenFile
from truehalf.verification.output_shapes import UNLIKE, shape_problems
from truehalf.verification.runs import Run, UnevenShapes, count_nonfinite
from truehalf.verification.stage_facts import Batches, BatchRow


def measure_batches(
    file: OpenFile, reference: Reference, stage: StageResult, sizes: Sequence[int], options: VerifyConfig
) -> Batches:
    """Run a file with each number of samples and compare it with its outputs in `stage`.

    The samples are those with the most detections among the ones that `stage` has seen.
    """
    if stage.facts["shape_faults"]:
        return {"state": NOT_VERIFIED, "reason": UNLIKE, "sizes": []}
    busiest = _busiest(reference, len(stage.found), options.score_threshold)
    samples = [busiest[i % len(busiest)] for i in range(max(sizes))]
    rows: list[BatchRow] = []
    for size in sizes:
        ran = size <= stage.facts.get("batch", 0)
        if not ran and (large := too_large(file.file.model, reference.samples[0], size, options.memory_gb)):
            rows.append({"batch": size, "state": NOT_VERIFIED, "reason": large})
        else:
            rows.append(_measure(file, reference, stage, samples, size, options))
    state = worst_of(row["state"] for row in rows)
    by_reason: dict[str, list[int]] = {}
    for row in rows:
        if row["state"] == state:
            by_reason.setdefault(row["reason"], []).append(row["batch"])
    reasons = [f"batch {', '.join(map(str, sizes))}: {reason}" for reason, sizes in by_reason.items()]
    return {"state": state, "reason": "; ".join(reasons), "sizes": rows}


def _measure(
    file: OpenFile,
    reference: Reference,
    stage: StageResult,
    samples: Sequence[int],
    size: int,
    options: VerifyConfig,
) -> BatchRow:
    fixed = file.file.fixed_batch
    if fixed not in (None, size):
        return {"batch": size, "state": NOT_VERIFIED, "reason": f"the file's batch is fixed to {fixed}"}
    mixed = [*samples, *samples][: size * -(-len(samples) // size)]  # full batches only
    rows = mixed + (mixed[:1] * size if size > 1 else [])
    first = _names(reference, rows[:size])
    try:
        outputs = file.run_all([reference.samples[i] for i in rows], size, alone=size > options.batch)
    except StageError as error:
        reason = str(error) if isinstance(error, UnevenShapes) else f"the file does not run: {error}"
        return {"batch": size, "state": FAILED, "reason": reason, "samples": first}
    before = {name: value[rows] for name, value in stage.outputs.items()}
    if problems := shape_problems(before, outputs, reference.spec):
        return {"batch": size, "state": FAILED, "reason": "; ".join(problems), "samples": first}
    bad, bad_before = count_nonfinite(outputs), count_nonfinite(before)
    facts: BatchRow = {"batch": size, "nonfinite": bad, "nonfinite_before": bad_before}
    if bad != bad_before:
        reason = f"the outputs hold {bad} NaN or Inf, else {bad_before}"
        differs = next(
            k for k, i in enumerate(rows) if count_nonfinite(outputs, k) != count_nonfinite(stage.outputs, i)
        )
        return {**facts, "state": FAILED, "reason": reason, "samples": _run_of(reference, rows, size, differs)}
    if bad_before:
        reason = coded("not-finite", "the outputs are not finite: nothing was compared")
        return {**facts, "state": NOT_VERIFIED, "reason": reason}
    run = Run(_names(reference, rows), len(rows), before, outputs)
    seen = reference.measured_run(run, rows, options, [stage.found[i] for i in rows])
    found = same_outputs(seen)
    facts = {**facts, **found}
    if found["state"] == VERIFIED and found.get("reference") == 0:
        reason = coded("nothing-compared", "the file finds nothing: nothing was compared")
        return {**facts, "state": NOT_VERIFIED, "reason": reason}
    if found["state"] == FAILED:
        lost = (k for k, one in enumerate(seen.matchings) if one.missed or one.extra)
        if "tensor_rms" in facts:
            differs = int(errors_by_sample(seen.runs, seen.plain).argmax())
        else:  # all may be found, with other scores or boxes
            differs = next(lost, worst_samples(facts_by_sample(seen), 1)[0])
        return {**facts, "samples": _run_of(reference, rows, size, differs)}
    return facts


def _run_of(reference: Reference, rows: Sequence[int], size: int, row: int) -> list[str]:
    """The samples of the run that holds a row."""
    start = row // size * size
    return _names(reference, rows[start : start + size])


def _names(reference: Reference, rows: Sequence[int]) -> list[str]:
    return [reference.names[i] for i in rows]


def _busiest(reference: Reference, count: int, threshold: float) -> list[int]:
    """Of the first `count` samples, those with the most detections first."""
    found = [int((detections.scores >= threshold).sum()) for detections in reference.found[:count]]
    return sorted(range(count), key=lambda i: -found[i])
