"""The model itself as the yardstick: how far FP16 moves an output, and how far half a step of its input does.

    error       rms of candidate - reference
    response    rms of reference on inputs moved by half a step - reference, over all draws
                (truehalf.verification.metrics.half_steps)
    scale       rms of the reference
    floor       gates.tensor_rms_max, 0.5 %

    an output   passes if  error <= floor * scale,  or  error <= 2 * response  and  error <= 4 * floor * scale
    a channel   passes if  error <= 10 * floor * scale,  or  error <= 2 * response;  scale and response are its own
                40 in place of 10 where it has 32 values or fewer

Channels are the slices of axis 1 and of the last axis, so that a column of scores beside boxes has a scale of its own.
A sample is judged as a channel, with the output's scale where that is larger; so is each class of rows that are
distributions: of 6625 characters one that no letter shows has no scale. Of 43 trained models and 10 with graded
faults these limits fail the files whose task changes, and no good one.

Left out are values that are the same in both files: NaN, Inf, and masks below -30000, whatever their size. Rounding
moves values next to 0 by the smallest steps of float16, which fails nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

FLOOR = 0.005  # of a decision's operands; of outputs the gate's
SLACK = 2.0  # FP16 may move an output so many times as far as half a step of the input
CAP = 4.0  # floors of an output
OF_CHANNEL = 10.0  # floors: of a softmax over 1000 classes columns are off by 3 %, and nothing turns
FEW = 32  # values of a channel or fewer: of 896 channels of 8 values each one is off by 6 %, and no face is lost
OF_FEW = 40.0  # floors
MASK = -3e4  # or less: FP16 cannot hold -1e9, and -65504 means the same
SMALLEST = 4 * 2.0**-24  # steps of float16 next to 0
SMALL_MASK = -9e3  # or less is a mask among values that are chosen from
_DEVIATIONS = 2.32  # of a normal distribution, between these percentiles
Arrays = Sequence[np.ndarray]
Draws = Sequence[Arrays]  # arrays by draw and run


@dataclass(frozen=True)
class Deviation:
    """How far an output, or a part of it, is moved, in shares of its scale.

    Attributes:
        part: "" for the whole output, else as "channel 3 of axis 1" or "sample a.png".
        error: by the file.
        response: by half a step of the input; None where nothing had to be asked, or no input can be moved.
        passed: by the rule at the top of this module.
    """

    part: str
    error: float
    response: float | None
    passed: bool


def deviations(
    references: Arrays,
    candidates: Arrays,
    places: Sequence[Sequence[str]],
    floor: float,
    moved: Callable[[], Draws],
    of_classes: bool = False,
) -> list[Deviation]:
    """Measure an output by the yardstick: the whole output first, then the worst of each kind of part that fails.

    Args:
        references, candidates: float arrays of one shape, by run.
        places: names of the samples that axis 0 counts, by run; one name where it counts none.
        floor: see the top of this module.
        moved: gives the reference's arrays on moved inputs, by draw and run; called only where an error is beyond
            what passes without them. Empty: there is no response.
        of_classes: the last axis holds a distribution over classes.
    """
    kept = [compared_places(*pair) for pair in zip(references, candidates, strict=True)]
    scales = _by_part([np.where(where, r, 0) for r, where in zip(references, kept, strict=True)], places)
    errors = _by_part(_apart(references, candidates, kept), places)
    for kind in ("sample", *([f"axis {references[0].ndim - 1}"] if of_classes else [])):
        if kind in scales:
            scales[kind] = np.maximum(scales[kind], scales[""])
    floors = {kind: _floors(kind, references, len(error)) for kind, error in errors.items()}
    if all(_passes(floors[kind], errors[kind], scales[kind], None, floor).all() for kind in errors):
        return [_deviation("", 0, errors[""], scales[""], None, True)]
    by_draw = [_by_part(_apart(references, draw, kept), places) for draw in moved()]
    found = []
    for kind, error in errors.items():
        squares = [np.square(parts[kind]) for parts in by_draw]
        response = np.sqrt(np.mean(squares, axis=0)) if squares else None
        passed = _passes(floors[kind], error, scales[kind], response, floor)
        limit = np.maximum(floors[kind] * floor * scales[kind], 0 if response is None else SLACK * response)
        worst = int(np.argmax(np.where(passed, -1, error / np.maximum(limit, SMALLEST))))
        name = _names_of_rows(references, places)[worst] if kind == "sample" else str(worst)
        part = "" if not kind else f"sample {name}" if kind == "sample" else f"channel {name} of {kind}"
        if not kind or not passed.all():
            found.append(_deviation(part, worst, error, scales[kind], response, bool(passed.all())))
    return found


def compared_places(reference: np.ndarray, candidate: np.ndarray) -> np.ndarray:
    """bool of their shape: places where both hold a finite value that is no mask."""
    masked = (reference <= MASK) & (candidate <= MASK)
    return np.asarray(np.isfinite(reference) & np.isfinite(candidate) & ~masked)


def spread_of(values: np.ndarray) -> float:
    """Standard deviation of finite values as their 25th and 95th percentile show it, without masks: a mask of -10000
    among logits is no spread.
    """
    finite = values[np.isfinite(values) & (values > SMALL_MASK)].astype(np.float64)
    if not finite.size:
        return 0.0
    low, high = np.quantile(finite, (0.25, 0.95))
    return float(high - low) / _DEVIATIONS


def _apart(references: Arrays, others: Arrays, kept: Sequence[np.ndarray]) -> list[np.ndarray]:
    """other - reference in float64, 0 where they are not compared."""
    found = []
    for reference, other, where in zip(references, others, kept, strict=True):
        places = where & np.isfinite(other)
        found.append(np.subtract(other, reference, out=np.zeros(reference.shape), where=places, dtype=np.float64))
    return found


def _by_part(arrays: Arrays, places: Sequence[Sequence[str]]) -> dict[str, np.ndarray]:
    """Root mean square of all values, by channel of axis 1 and of the last axis, and by sample; by kind of part."""
    squares = [np.square(array, dtype=np.float64) for array in arrays]
    found = {"": np.atleast_1d(_mean(squares, None))}
    ranks = {each.ndim for each in squares}
    for axis in sorted({1, max(ranks) - 1}) if len(ranks) == 1 and max(ranks) > 1 else ():
        if len({each.shape[axis] for each in squares}) == 1 < squares[0].shape[axis]:
            found[f"axis {axis}"] = _mean(squares, axis)
    rows = [each if _counts(each, names) else each[None] for each, names in zip(squares, places, strict=True)]
    found["sample"] = np.concatenate([_mean([each], 0) for each in rows])
    return {kind: np.sqrt(values) for kind, values in found.items()}


def _counts(array: np.ndarray, names: Sequence[str]) -> bool:
    """True if axis 0 counts the samples of a run."""
    return array.ndim > 0 and len(array) == len(names)


def _names_of_rows(arrays: Arrays, places: Sequence[Sequence[str]]) -> list[str]:
    rows = [names if _counts(each, names) else names[:1] for each, names in zip(arrays, places, strict=True)]
    return [name for names in rows for name in names]


def _mean(squares: Arrays, axis: int | None) -> np.ndarray:
    """Mean over all but one axis."""
    sums = [each.sum(axis=tuple(i for i in range(each.ndim) if i != axis)) for each in squares]
    count = sum(each.size // (1 if axis is None else max(each.shape[axis], 1)) for each in squares)
    return np.asarray(sum(sums) / max(count, 1))


def _floors(kind: str, arrays: Arrays, parts: int) -> float:
    """Limit of a part's error, in floors; 0 for the whole output."""
    if not kind:
        return 0.0
    return OF_FEW if sum(array.size for array in arrays) <= FEW * parts else OF_CHANNEL


def _passes(
    floors: float, error: np.ndarray, scale: np.ndarray, response: np.ndarray | None, floor: float
) -> np.ndarray:
    """bool by part: see the top of this module."""
    answered = np.zeros(len(error), bool) if response is None else error <= SLACK * response
    if floors:
        passed = answered | (error <= floors * floor * scale)
    else:
        passed = (error <= floor * scale) | (answered & (error <= CAP * floor * scale))
    return np.asarray(passed | (error <= SMALLEST))


def _deviation(
    part: str, place: int, error: np.ndarray, scale: np.ndarray, response: np.ndarray | None, passed: bool
) -> Deviation:
    def share(values: np.ndarray) -> float:
        return float(values[place] / scale[place]) if scale[place] else float("inf") if values[place] else 0.0

    return Deviation(part, share(error), None if response is None else share(response), passed)
