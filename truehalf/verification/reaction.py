"""Does an output react to the input? A file that outputs the same whatever it is fed may be right on every sample.

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


@dataclass(frozen=True)
class Observed:
    """One output of both files on samples.

    Attributes:
        name: of the output.
        reference, candidate: one array for each sample.
        samples: a digest of each sample's inputs.
        always: whether it counts also where another output reacts, see above.
        arbitrary: whether the weights are random and it holds what they choose.
    """

    name: str
    reference: Sequence[np.ndarray]
    candidate: Sequence[np.ndarray]
    samples: Sequence[str]
    always: bool = True
    arbitrary: bool = False


def reactions(outputs: Sequence[Observed]) -> list[Finding]:
    """Judge all outputs of a file together; no node is to blame for what is open."""
    alike = [output.name for output in outputs if len({*output.samples}) < 2]
    shares = {output.name: _share(output) for output in outputs if output.name not in alike}
    none_reacts = not alike and all(share is None for share in shares.values())
    chosen_react = any(output.arbitrary and not _is_constant(output.candidate) for output in outputs)
    found: list[Finding] = []
    for output in (each for each in outputs if each.name in shares):
        share, state = shares[output.name], FAILED
        if share is None and (output.always or none_reacts):
            why, state = "the reference's moves by no more than FP16 shows; nothing says that it is right", NOT_VERIFIED
        elif share is None or share >= FOLLOWS:
            continue
        else:
            why = f"it moves by {share:.2%} of what the reference's does: it ignores its input"
            if output.arbitrary and chosen_react:
                why, state = f"{why}, or the weights, which are random, choose other queries", NOT_VERIFIED
        reason = coded("input-ignored", f"output {output.name!r} on {len(output.samples)} samples, which differ: {why}")
        facts = {"output": output.name}
        found.append(Finding("reaction", state, reason, no_node=state == NOT_VERIFIED, facts=facts))
    if alike and len(found) < len(outputs):
        count = max(len(output.samples) for output in outputs if output.name in alike)
        samples = "there is one sample" if count == 1 else f"the {count} samples are all alike"
        named = ", ".join(map(repr, alike))
        reason = f"whether {named} react{'s' * (len(alike) == 1)} to the input: {samples}; give samples that differ"
        found.append(Finding("reaction", NOT_VERIFIED, coded("samples-alike", reason), decides=False))
    return found or [Finding("reaction", VERIFIED, "the outputs change with the input")]


def _share(output: Observed) -> float | None:
    """Measure how far an output moves from sample to sample, as a share of how far the reference's does; None if it
    does not move, and FP16 need not show that it should.
    """
    reference, candidate = output.reference, output.candidate
    if _is_constant(reference):
        return None
    follows = 0.0 if _is_constant(candidate) else 1.0
    if len({array.shape for array in (*reference, *candidate)}) > 1:
        return follows if output.always else 1.0  # as many detections as there are: their gates judge it
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


def observed(
    runs: Sequence[Run],
    names: Iterable[str],
    together: Collection[str],
    arbitrary: bool = False,
) -> list[Observed]:
    """Outputs of two files; by sample where axis 0 of inputs counts them and an axis of the outputs does (the first of
    that length, or axis 0 of a multiple of it), else by run.

    Args:
        names: of outputs that both have.
        together: outputs that make up detections.
        arbitrary: whether the weights are random, and `together` holds what they choose.
    """
    found = []
    for name in names:
        pairs = [(np.asarray(run.reference[name]), np.asarray(run.candidate[name])) for run in runs]
        rows = [len(run.inputs) for run in runs]
        parted = [(_by_sample(a, n), _by_sample(b, n)) for (a, b), n in zip(pairs, rows, strict=True)]
        sides = [[each for each in side if each is not None] for side in zip(*parted, strict=True)]
        if all(len(side) == len(runs) for side in sides):
            reference, candidate = ([np.asarray(row) for each in side for row in each] for side in sides)
            samples = [sample for run in runs for sample in run.inputs]
        else:
            reference, candidate = ([pair[side] for pair in pairs] for side in (0, 1))
            samples = [" ".join(run.inputs) for run in runs]
        always = pairs[0][1].dtype.kind == "f" and name not in together
        found.append(Observed(name, reference, candidate, samples, always, arbitrary and name in together))
    return found


def _by_sample(values: np.ndarray, samples: int) -> np.ndarray | None:
    """[samples, ...]; None where no axis counts them."""
    if samples in values.shape:
        return np.moveaxis(values, values.shape.index(samples), 0)
    if values.ndim and len(values) > samples > 1 and len(values) % samples == 0:
        return values.reshape(samples, len(values) // samples, *values.shape[1:])
    return None
