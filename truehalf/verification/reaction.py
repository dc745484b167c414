"""Reaction of outputs to the input: a file that outputs the same whatever it is fed may be right on every sample.

    failed         the output moves from sample to sample by less than FOLLOWS of what the reference's does, counted
                   where that moves by more than STEPS of FP16
    not verified   the reference does not react, or by too little for FP16 and the file does not: nothing says that it
                   is right on any other input
    open           one sample, or samples that are all alike: it takes nothing from what was compared on them

With random weights it is arbitrary which queries a detector keeps: the reference's may change with the sample and a
file's not. Beside an output of the same queries that reacts, that is not verified, and no failure.

An output of integers, bools or strings may rightly be the same on all samples (a count, a shape), and so may one of
several that make up detections: those count where no output reacts.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from truehalf.codes import coded
from truehalf.verification.findings import FAILED, NOT_VERIFIED, VERIFIED, Finding

if TYPE_CHECKING:
    from truehalf.verification.runs import Run

STEPS = 2.0  # of FP16 at the value itself: what moves by more is another number there
FOLLOWS = 0.25  # root mean squares around the mean; of a move by STEPS rounding leaves half, and errors only add to it


@dataclass(frozen=True, eq=False)
class _Output:
    """One output of both files: arrays by sample, or by run."""

    name: str
    reference: Sequence[np.ndarray]
    candidate: Sequence[np.ndarray]
    inputs: Collection[str]  # digests of what went in


def reactions(
    runs: Sequence[Run], names: Iterable[str], together: Collection[str], is_arbitrary: bool = False
) -> list[Finding]:
    """Judge outputs of a file together; no node is to blame for what is open.

    Args:
        names: of outputs that both files have.
        together: outputs that make up detections.
        is_arbitrary: the weights are random, and `together` holds what they choose.
    """
    outputs = [_observed(runs, name) for name in names]
    alike = [each for each in outputs if len({*each.inputs}) < 2]
    moving = [each for each in outputs if each not in alike]
    shares = {each.name: _share(each, each.name in together) for each in moving}
    none_reacts = not alike and all(share is None for share in shares.values())
    chosen = [each for each in outputs if each.name in together] if is_arbitrary else []
    chosen_react = any(not _is_constant(each.candidate) for each in chosen)
    findings: list[Finding] = []
    for each in moving:
        share, state = shares[each.name], FAILED
        if share is None and (none_reacts or (each.candidate[0].dtype.kind == "f" and each.name not in together)):
            why, state = "the reference's moves by no more than FP16 shows; nothing says that it is right", NOT_VERIFIED
        elif share is None or share >= FOLLOWS:
            continue
        else:
            why = f"it moves by {share:.2%} of what the reference's does: it ignores its input"
            if each in chosen and chosen_react:
                why, state = f"{why}, or the weights, which are random, choose other queries", NOT_VERIFIED
        reason = coded("input-ignored", f"output {each.name!r} on {len(each.inputs)} samples, which differ: {why}")
        findings.append(Finding("reaction", state, reason, no_node=state == NOT_VERIFIED, facts={"output": each.name}))
    if alike and len(findings) < len(outputs):
        count = max(len(each.inputs) for each in alike)
        samples = "there is one sample" if count == 1 else f"the {count} samples are all alike"
        named = ", ".join(repr(each.name) for each in alike)
        reason = f"whether {named} react{'s' * (len(alike) == 1)} to the input: {samples}; give samples that differ"
        findings.append(Finding("reaction", NOT_VERIFIED, coded("samples-alike", reason), decides=False))
    return findings or [Finding("reaction", VERIFIED, "the outputs change with the input")]


def _observed(runs: Sequence[Run], name: str) -> _Output:
    """Split an output by sample where axis 0 of inputs counts them and an axis of the output does (the first of that
    length, or axis 0 of a multiple of it), else by run.
    """
    sides = [[np.asarray(side[name]) for side in (run.reference, run.candidate)] for run in runs]
    split = [[_by_sample(array, len(run.inputs)) for array in pair] for pair, run in zip(sides, runs, strict=True)]
    if any(part is None for pair in split for part in pair):
        inputs = [" ".join(run.inputs) for run in runs]
        reference, candidate = zip(*sides, strict=True)
        return _Output(name, reference, candidate, inputs)
    reference, candidate = ([row for part in side for row in part or ()] for side in zip(*split, strict=True))
    return _Output(name, reference, candidate, [sample for run in runs for sample in run.inputs])


def _by_sample(values: np.ndarray, samples: int) -> list[np.ndarray] | None:
    """One array for each sample; None where no axis counts them."""
    if samples in values.shape:
        return [*np.moveaxis(values, values.shape.index(samples), 0)]
    if values.ndim and len(values) > samples > 1 and len(values) % samples == 0:
        return [*values.reshape(samples, len(values) // samples, *values.shape[1:])]
    return None


def _share(output: _Output, is_together: bool) -> float | None:
    """Measure how far an output moves from sample to sample, as a share of how far the reference's does; None if it
    does not move, and FP16 need not show that it should.
    """
    reference, candidate = output.reference, output.candidate
    if _is_constant(reference):
        return None
    follows = 0.0 if _is_constant(candidate) else 1.0
    if len({array.shape for array in (*reference, *candidate)}) > 1:
        is_counted = is_together or candidate[0].dtype.kind != "f"
        return 1.0 if is_counted else follows  # as many detections as there are: their gates judge it
    if reference[0].dtype.kind != "f":
        return follows
    with np.errstate(invalid="ignore", over="ignore"):
        low, high = np.minimum.reduce(reference), np.maximum.reduce(reference)
        largest = np.maximum(np.abs(low), np.abs(high)).astype(np.float64)
        step = np.ldexp(1.0, np.maximum(np.frexp(largest)[1] - 1, -14) - 10)
        moves = high.astype(np.float64) - low > STEPS * step
        finite = moves & np.isfinite(largest) & np.isfinite(np.sum(candidate, axis=0))
    if not moves.any():
        return follows or None
    return _moved(candidate, finite) / _moved(reference, finite) if follows and finite.any() else follows


def _moved(arrays: Sequence[np.ndarray], places: np.ndarray) -> float:
    """Root mean square of values around their means over the samples."""
    mean = sum(array[places].astype(np.float64) for array in arrays) / len(arrays)
    return math.sqrt(np.mean([np.square(array[places] - mean).mean() for array in arrays]))


def _is_constant(arrays: Sequence[np.ndarray]) -> bool:
    first = arrays[0]
    return all(np.array_equal(first, each, equal_nan=first.dtype.kind == "f") for each in arrays[1:])
