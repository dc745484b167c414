"""Does an output react to the input? A file that outputs the same whatever it is fed may be right on every sample.

    failed         the output is the same on samples that differ, or moves by less than FOLLOWS of what the reference's
                   does, while that moves by more than STEPS of FP16; or what it differs by from the reference moves by
                   more than that: another sample's answer, the wrong way
    not verified   the reference does not react, either, or by so little that FP16 may not show it: nothing says that it
                   is right on any other input
    open           one sample, or samples that are all alike: it takes nothing from what was compared on them

With random weights it is arbitrary which queries a detector keeps: the reference's may change with the sample and a
file's not. Beside an output of the same queries that reacts, that is not verified, and no failure.

An output of integers, bools or strings may rightly be the same on all samples (a count, a shape), and so may one of
several that make up detections: those count where no output reacts.
"""

from __future__ import annotations

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
        failed: whether its values are known to be wrong.
    """

    name: str
    reference: Sequence[np.ndarray]
    candidate: Sequence[np.ndarray]
    samples: Sequence[str]
    always: bool = True
    arbitrary: bool = False
    failed: bool = False


def reactions(outputs: Sequence[Observed]) -> list[Finding]:
    """Judge all outputs of a file together; no node is to blame for what is open."""
    found: list[Finding] = []
    unmoved: dict[str, str] = {}
    alike = [output for output in outputs if len({*output.samples}) < 2]
    chosen_react = any(output.arbitrary and not _is_constant(output.candidate) for output in outputs)
    for output in (each for each in outputs if len({*each.samples}) > 1):
        ignored, unknown = _judged(output)
        why = ignored or unknown
        is_arbitrary = bool(ignored) and output.arbitrary and chosen_react
        if is_arbitrary:
            why += ", or the weights, which are random, choose other queries"
        reason = coded("input-ignored", f"output {output.name!r}: {why}")
        if is_arbitrary:
            found.append(_finding(output.name, NOT_VERIFIED, reason))
        elif ignored:
            found.append(_finding(output.name, FAILED, reason))
        elif unknown:
            unmoved[output.name] = reason
    none_moves = len(unmoved) == len(outputs)
    counting = {output.name for output in outputs if output.always or none_moves}
    found += [_finding(name, NOT_VERIFIED, reason) for name, reason in unmoved.items() if name in counting]
    if alike and len(found) < len(outputs):
        count = max(len(output.samples) for output in alike)
        samples = "there is one sample" if count == 1 else f"the {count} samples are all alike"
        named = ", ".join(repr(output.name) for output in alike)
        reason = f"whether {named} react{'s' * (len(alike) == 1)} to the input: {samples}; give samples that differ"
        found.append(Finding("reaction", NOT_VERIFIED, coded("samples-alike", reason), decides=False))
    return found or [Finding("reaction", VERIFIED, "the outputs change with the input")]


def _finding(name: str, state: str, reason: str) -> Finding:
    return Finding("reaction", state, reason, no_node=state == NOT_VERIFIED, facts={"output": name})


def _judged(output: Observed) -> tuple[str, str]:
    """Why an output ignores its input, or else why nothing can be concluded from it; empty where neither."""
    count = len(output.samples)
    unlike = len({array.shape for array in (*output.reference, *output.candidate)}) > 1
    moved = None if unlike or output.reference[0].dtype.kind != "f" else _moved(output.reference, output.candidate)
    if _is_constant(output.reference):
        return "", f"the reference's is the same on all {count} samples, which differ; nothing says that it is right"
    if _is_constant(output.candidate):
        if moved is not None and not moved.places:
            reason = "the reference's moves by no more than a step of FP16"
            return "", f"it is the same on all {count} samples, and {reason}"
        if unlike and not output.always:
            return "", ""  # as many detections as there are: their gates judge it
        return f"it is the same on all {count} samples, and the reference's is not: it ignores its input", ""
    if moved is None or not moved.places:
        return "", ""
    if moved.candidate < FOLLOWS:
        return f"it moves by {moved.candidate:.2%} of what the reference's does: it ignores its input", ""
    if moved.difference > 1 and output.always and not output.failed:
        reason = f"the difference from the reference moves by {moved.difference:.2%} of what that does"
        return f"{reason}: it is the answer to another input", ""
    return "", ""


@dataclass(frozen=True)
class _Moved:
    """How far values move from sample to sample, as shares of the reference's root mean square around the mean.

    Attributes:
        places: how many of the reference's values move by more than FP16 may swallow; the shares are of those.
    """

    candidate: float
    difference: float
    places: int


def _moved(reference: Sequence[np.ndarray], candidate: Sequence[np.ndarray]) -> _Moved:
    """Measure floats of one shape."""
    low, high = reference[0].astype(np.float64), reference[0].astype(np.float64)
    sums = [np.zeros(low.shape), np.zeros(low.shape)]
    with np.errstate(invalid="ignore", over="ignore"):
        for pair in zip(reference, candidate, strict=True):
            low, high = np.minimum(low, pair[0]), np.maximum(high, pair[0])
            sums = [total + array for total, array in zip(sums, pair, strict=True)]
        step = np.ldexp(1.0, np.maximum(np.frexp(np.maximum(np.abs(low), np.abs(high)))[1] - 1, -14) - 10)
        moves = high - low > STEPS * step
        ours, theirs = (total / len(reference) for total in sums)
        finite = np.isfinite(ours) & np.isfinite(theirs) & moves
        squares = np.zeros(3)
        for r, c in zip(reference, candidate, strict=True):
            changes = (r[finite] - ours[finite], c[finite] - theirs[finite])
            squares += [float(np.square(each).sum()) for each in (*changes, changes[1] - changes[0])]
    shares = np.sqrt(squares[1:] / squares[0]) if squares[0] else (1.0, 0.0)
    return _Moved(float(shares[0]), float(shares[1]), int(moves.sum()))


def _is_constant(arrays: Sequence[np.ndarray]) -> bool:
    first = arrays[0]
    nan = first.dtype.kind == "f"
    return all(np.array_equal(first, each, equal_nan=nan) for each in arrays[1:])


def observed(
    runs: Sequence[Run],
    names: Iterable[str],
    together: Collection[str],
    arbitrary: bool = False,
    failed: Collection[str] = (),
) -> list[Observed]:
    """Outputs of two files; by sample where axis 0 of inputs counts them and an axis of the outputs
    does (the first of that length, or axis 0 of a multiple of it), else by run.

    Args:
        names: of outputs that both have.
        together: outputs that make up detections.
        arbitrary: whether the weights are random, and `together` holds what they choose.
        failed: outputs whose values are known to be wrong.
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
        chosen = arbitrary and name in together
        found.append(Observed(name, reference, candidate, samples, always, chosen, name in failed))
    return found


def _by_sample(values: np.ndarray, samples: int) -> np.ndarray | None:
    """[samples, ...]; None where no axis counts them."""
    if samples in values.shape:
        return np.moveaxis(values, values.shape.index(samples), 0)
    if values.ndim and len(values) > samples > 1 and len(values) % samples == 0:
        return values.reshape(samples, len(values) // samples, *values.shape[1:])
    return None
