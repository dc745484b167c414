"""Does an output react to the input? A file that outputs the same whatever it is fed may be right on every sample.

    failed         the output is the same on samples that differ, while the reference's moves by more than STEPS of
                   FP16; or its values move by less than FOLLOWS of what the reference's do that move by more than that
    not verified   the reference does not react, either, or by so little that FP16 may not show it: then nothing says
                   that the output is right on any other input; or its values move otherwise than the reference's: the
                   difference moves by more than those do (another sample's answer, the wrong way), or a slice of it is
                   the same on all samples
    open           one sample, or samples that are all alike: the same question, left open by the samples; it takes
                   nothing from what was compared on them

With random weights it is arbitrary which queries a detector keeps: the reference's may change with the sample and a
file's not. Beside an output of the same queries that reacts, that is not verified, and no failure.

An output of integers, bools or strings may rightly be the same on all samples (a count, a shape), and so may one of
several that make up detections: those count where no output reacts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from truehalf.codes import coded

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


@dataclass
class Reactions:
    """What was found: by output the reasons to fail, and what the verdict cannot do without; and, over all outputs,
    what the samples leave open.
    """

    failures: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)
    open: str = ""


def reactions(outputs: Sequence[Observed]) -> Reactions:
    """Judge all outputs of a file together."""
    found = Reactions()
    unmoved: dict[str, str] = {}
    left_open: list[Observed] = []
    chosen_react = any(output.arbitrary and not _is_constant(output.candidate) for output in outputs)
    for output in outputs:
        why = _problem(output)
        if why and output.arbitrary and chosen_react:
            reason = f"output {output.name!r}: {why}, or the weights, which are random, choose other queries"
            found.unknown[output.name] = coded("input-ignored", reason)
        elif why:
            found.failures[output.name] = coded("input-ignored", f"output {output.name!r}: {why}")
        elif why := _moves_otherwise(output):
            found.unknown[output.name] = coded("input-ignored", f"output {output.name!r}: {why}")
        elif why := _unmoved(output):
            reason = f"output {output.name!r}: {why}; so nothing says that it is right on another input"
            unmoved[output.name] = coded("input-ignored", reason)
        elif len({*output.samples}) < 2:
            left_open.append(output)
    none_moves = len(unmoved) == len(outputs)
    counting = {output.name for output in outputs if output.always or none_moves}
    found.unknown |= {name: reason for name, reason in unmoved.items() if name in counting}
    if left_open:
        count = max(len(output.samples) for output in left_open)
        samples = "there is one sample" if count == 1 else f"the {count} samples are all alike"
        named = ", ".join(repr(output.name) for output in left_open)
        reason = f"whether {named} react{'s' * (len(left_open) == 1)} to the input: {samples}; give samples that differ"
        found.open = coded("samples-alike", reason)
    return found


def _problem(output: Observed) -> str:
    """Why an output does not react as it should, or nothing."""
    if len({*output.samples}) < 2:
        return ""
    if not _is_constant(output.candidate):
        if not _are_floats_of_one_shape(output):
            return ""
        moved = _moved(output.reference, output.candidate)
        share = moved.share(moved.candidate)
        reason = f"from sample to sample it moves by {share:.2%} of what the reference's does: it ignores its input"
        return reason if share < FOLLOWS else ""
    if not _moves(output.reference):
        return ""
    if not output.always and len({array.shape for array in output.reference}) > 1:
        return ""  # as many detections as there are: their gates judge it
    return f"it is the same on all {len(output.samples)} samples, and the reference's is not: it ignores its input"


def _moves_otherwise(output: Observed) -> str:
    """Why an output that moves as much as the reference's may still not follow its input, or nothing."""
    if output.failed or not output.always or len({*output.samples}) < 2 or not _are_floats_of_one_shape(output):
        return ""
    moved = _moved(output.reference, output.candidate)
    if not moved.places.any():
        return ""
    if (share := moved.share(moved.difference)) > 1.0:
        return f"the difference from the reference moves by {share:.2%} of what that does from sample to sample"
    for axis in range(moved.places.ndim):
        others = tuple(each for each in range(moved.places.ndim) if each != axis)
        still = (moved.candidate == 0).all(axis=others)
        of_reference = np.count_nonzero(moved.places, axis=others) * 2 > moved.places.size // moved.places.shape[axis]
        if (ignored := np.flatnonzero(still & of_reference)).size:
            return f"index {ignored[0]} of axis {axis + 1} is the same on all samples, and the reference's is not"
    return ""


def _unmoved(output: Observed) -> str:
    """Why nothing can be concluded from an output without a problem, or nothing."""
    count = len(output.samples)
    if len({*output.samples}) < 2:
        return ""
    if _is_constant(output.reference):
        return f"the reference's is the same on all {count} samples, which differ"
    if _is_constant(output.candidate):
        return f"it is the same on all {count} samples, and the reference's moves by no more than a step of FP16"
    return ""


def _moves(arrays: Sequence[np.ndarray]) -> bool:
    """Whether an output changes by more than FP16 may swallow."""
    if len({array.shape for array in arrays}) > 1 or arrays[0].dtype.kind != "f":
        return not _is_constant(arrays)
    stacked = np.stack(arrays).astype(np.float64)
    finite = np.isfinite(stacked)
    if (finite.any(axis=0) & ~finite.all(axis=0)).any():
        return True
    values = np.where(finite, stacked, 0.0)
    low, high = values.min(axis=0), values.max(axis=0)
    return bool(_by_more_than_steps(low, high).any())


def _by_more_than_steps(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    exponent = np.frexp(np.maximum(np.abs(low), np.abs(high)))[1] - 1
    return np.asarray(high - low > STEPS * np.ldexp(1.0, np.maximum(exponent, -14) - 10))


@dataclass(frozen=True)
class _Moved:
    """Squared distances from the mean over samples, value by value: of both files, and of their difference.

    Attributes:
        places: where the reference's values move by more than FP16 may swallow.
    """

    reference: np.ndarray
    candidate: np.ndarray
    difference: np.ndarray
    places: np.ndarray

    def share(self, of: np.ndarray) -> float:
        """Root mean square in `places`, beside the reference's; 1 where there are none."""
        if not self.places.any():
            return 1.0
        return float(np.sqrt(max(of[self.places].sum(), 0.0) / self.reference[self.places].sum()))


def _are_floats_of_one_shape(output: Observed) -> bool:
    shapes = {array.shape for array in (*output.reference, *output.candidate)}
    return len(shapes) == 1 and output.reference[0].dtype.kind == "f"


def _moved(reference: Sequence[np.ndarray], candidate: Sequence[np.ndarray]) -> _Moved:
    """Of floats of one shape."""
    first = [np.asarray(side[0], np.float64) for side in (reference, candidate)]
    low, high = first[0], first[0]
    sums, squares = ([np.zeros(first[0].shape) for _ in range(3)] for _ in range(2))
    with np.errstate(invalid="ignore", over="ignore"):
        for pair in zip(reference, candidate, strict=True):
            low, high = np.minimum(low, pair[0]), np.maximum(high, pair[0])
            moves = [array - start for array, start in zip(pair, first, strict=True)]
            for i, moved in enumerate((*moves, moves[1] - moves[0])):
                sums[i] += moved
                squares[i] += moved * moved
        spread = [square - total * total / len(reference) for square, total in zip(squares, sums, strict=True)]
        places = np.isfinite(spread[0]) & np.isfinite(spread[1])
        places &= _by_more_than_steps(np.where(places, low, 0.0), np.where(places, high, 0.0))
    of_reference, of_candidate, of_difference = spread
    return _Moved(of_reference, of_candidate, of_difference, places)


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
