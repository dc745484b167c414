"""Errors in parts of an output whose scale is far below its largest value, which the tensor rule cannot see.

The tensor rule judges an output by its largest value. So a map with one channel of 500 and 63 of 1 passes whatever
those hold. Each part of an output is therefore also compared with the scale of that part. Parts are

    slices      of every axis, and of axis 0 with every other: a channel, a row, a channel of one sample
    clusters    all values of about one magnitude, wherever they stand: a decade of |r| that holds as many values as the
                decade above it (CLUSTER), which the tail of a bell around 0 never does: there each holds a tenth
    slices of what an empty decade parts from larger values, these left out: a mask of -1e4 stands in every row

A part is masked by scale where the tensor rule lets pass a good share of it (FAR_SMALLER), and it is wrong where

    p99 |o - r| > WRONG * max |r|                        of slices of one axis, and of clusters; of few values, GROSS
    the median of |o - r| / |r| > MIDDLE                 of the values in its largest decade: of slices of one axis, and
                                                         of what an empty decade parts from larger values
    more than SHARE of its values hold |o - r| > GROSS * |r|
                                                         of every part; of the values in its largest decade, and of
                                                         smaller ones that gain GROSS * max |r|

so that of a part which is mostly 0 those values count that are not. Of a slice that is 0 in r all values count, against
what is usual in its like, or FAR_SMALLER of the output. The second bound is wide, because rounding is relative to
what was added up, of which the output may show next to nothing after a Relu or a Sigmoid. FP16's smallest steps and
what FP32's rounding leaves of a zero are no error.

In an output of less than FEW values a part of less than FEWEST has no separate scale: it is masked where each value
is far smaller than the largest of the output, and off by GROSS of itself and by ROUNDED of that, which is more than
cancellation leaves of values that were rounded once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from truehalf.codes import coded
from truehalf.float16 import MAX

FAR_SMALLER = 0.1
WRONG = 0.05  # relative error that rounding does not explain
GROSS = 0.25  # ... of a single value
MIDDLE = 0.1  # ... of half of the values
SHARE = 0.1  # of the values
CLUSTER = 0.5
FEWEST = 4  # values that make a scale
MASK = -50.0  # or less: of a softmax that is nothing
ALIKE = 0.9  # of a mask's least value: a mask that was added to logits is off by what they are
FEW = 64  # values of an output in all runs, below which single ones are looked at
ROUNDED = 2.0**-10  # of the output's largest
_FEWEST_OF_FINE = 8
_MANY = 16  # values of a decade that is no chance; of a part whose single values count
_TAKEN = 4.0  # a part may be masked whose scale is this many tolerances of the output's
_NOTHING = 2.0**-20  # of the output's largest
_STEPS = 16 * 2.0**-24  # of FP16 below 2^-14, where it knows no smaller ones
_DECADES = 60
_MOST = 4000  # slices of a kind that are looked into, those with the largest relative errors
_APART = "without larger values, "
ALL, SLICES, COLUMNS = "all", "slices", "columns"
Pairs = Sequence[tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class _Part:
    name: str
    largest: float
    p99: float
    alive: int  # values that are not 0 in the reference
    decade: int  # ... in the largest decade
    wrong: int  # by GROSS
    middle: float  # relative error in the decade, the median

    @property
    def relative(self) -> float:
        return self.p99 / self.largest


@dataclass(frozen=True)
class _Output:
    """|r| and |d| of one shape, 0 where either file is not finite.

    Attributes:
        r, d: float64 [rows of all runs, ...].
        rows: what each row of axis 0 is called.
        whole: the largest |r| of the output in all runs.
        nothing: what is no more than this is 0 but for rounding.
        tolerance: of the tensor rule.
    """

    r: np.ndarray
    d: np.ndarray
    rows: Sequence[str]
    whole: float
    nothing: float
    tolerance: float


def masked_by_scale(
    name: str, pairs: Pairs, tolerance: float, places: Sequence[Sequence[str]], parts: str = ALL
) -> str | None:
    """A sentence on the worst part that is masked and wrong; None where there is none.

    Args:
        name: of the output.
        pairs: (reference, candidate) of each run, of one shape.
        tolerance: of the tensor rule.
        places: by run, what its samples are called; or what the run is called, where it has one name and several rows.
        parts: that are looked at: ALL; SLICES without clusters, of which near ties near 0 make one; COLUMNS, slices of
            the last axis alone, of rows that may rightly be others.
    """
    runs = [(pair, place) for pair, place in zip(pairs, places, strict=True) if pair[0].size]
    pairs, places = [pair for pair, _ in runs], [place for _, place in runs]
    if not pairs or any(a.dtype.kind != "f" or a.shape != b.shape for a, b in pairs):
        return None
    if all(np.array_equal(a, b) for a, b in pairs):
        return None
    outputs = _outputs(pairs, tolerance, places)
    ranks = [range(output.r.ndim) for output in outputs]
    if parts == COLUMNS:
        found = [_all_slices(outputs, [[(axes[-1],)] if len(axes) > 1 else [] for axes in ranks])]
    else:
        of_axes = _all_slices(outputs, [[(axis,) for axis in axes] for axes in ranks])
        of_samples = _all_slices(outputs, [[(0, axis) for axis in axes[1:]] for axes in ranks])
        found = [of_axes, of_samples, [*_clusters(outputs)] if parts == ALL else []]
    count = sum(map(len, found))
    if not count:
        return None
    clearest = next(each for each in found if each)
    worst, whole = max(clearest, key=lambda part: part.relative), outputs[0].whole
    more = f", as are {count - 1} other parts" if count > 1 else ""
    return coded(
        "hidden-by-scale",
        f"{worst.name} of output {name!r} masked by the scale of the others{more}: |values| there reach "
        f"{worst.largest:.4g}, those of the output {whole:.4g}; its p99 |d| is {worst.p99:.4g}, "
        f"{worst.relative:.0%} of its largest; the limit goes by the largest value of the whole output",
    )


def _outputs(pairs: Pairs, tolerance: float, places: Sequence[Sequence[str]]) -> list[_Output]:
    """The runs of one shape but for axis 0 together; vectors of one length below each other."""
    by_shape: dict[tuple[int, ...], list[int]] = {}
    for number, (a, _) in enumerate(pairs):
        by_shape.setdefault((a.ndim, *(a.shape if a.ndim < 2 else a.shape[1:])), []).append(number)
    magnitudes = [np.abs(a[np.isfinite(a)]) for a, _ in pairs]
    whole = max(float(each.max(initial=0.0)) for each in magnitudes)
    added_up = max(float(each[each <= MAX].max(initial=0.0)) for each in magnitudes)
    found = []
    for numbers in by_shape.values():
        sides = [[pairs[i][side] for i in numbers] for side in (0, 1)]
        a, b = (np.stack(each) if each[0].ndim < 2 else np.concatenate(each) for each in sides)
        rows = [row for i in numbers for row in _rows(pairs[i][0], places[i])]
        finite = np.isfinite(a) & np.isfinite(b)
        r, d = np.abs(a, dtype=np.float64), np.zeros(a.shape)
        np.subtract(a, b, out=d, where=finite, dtype=np.float64)
        r[~finite] = 0.0
        found.append(_Output(r, np.abs(d, out=d), rows, whole, _NOTHING * added_up, tolerance))
    return found


def _rows(values: np.ndarray, called: Sequence[str]) -> list[str]:
    if values.ndim < 2:
        return [f"run {called[0]}"]
    if len(called) == len(values):
        return [f"sample {each}" for each in called]
    return [f"row {row} (axis 0) on {called[0]}" for row in range(len(values))]


# --- slices -----------------------------------------------------------------------------------------------------------


def _all_slices(outputs: Sequence[_Output], groups: Sequence[Sequence[tuple[int, ...]]]) -> list[_Part]:
    """The wrong ones, by the axes whose indices make a slice."""
    return [part for each, axes in zip(outputs, groups, strict=True) for part in _slices(each, axes, "")]


def _slices(output: _Output, groups: Sequence[tuple[int, ...]], among: str) -> Iterator[_Part]:
    """The wrong ones of those that are far smaller than the output."""
    r, d = output.r, output.d
    far = max(FAR_SMALLER, _TAKEN * output.tolerance) * output.whole
    if not far:  # nothing but 0: no part has a scale
        return
    for group in groups:
        axes = tuple(axis for axis in range(r.ndim) if axis not in group)
        fewest = FEWEST if len(group) == 1 else _FEWEST_OF_FINE
        count = np.prod([r.shape[axis] for axis in axes])
        if count < FEWEST and r.size < FEW and not among:
            yield from _few(output, group, axes)
        if count < fewest:
            continue
        largest, error = r.max(axis=axes), d.max(axis=axes)
        suspicious = (largest <= far) & (error > max(WRONG, output.tolerance) * largest) & (error > _STEPS)
        if not suspicious.any():
            continue
        # Beside slices as large as the output, one of 0 is held to no wider bound than the largest that is far smaller;
        # but values that are left out may have spilt into it.
        unusual = np.inf if among else far
        usual = _usual(r, largest, axes, output.nothing, far) or (unusual, unusual)
        suspicious &= (largest > output.nothing) | (error > WRONG * usual[0])
        places = np.argwhere(suspicious)
        by_error = np.argsort(-(error[suspicious] / np.maximum(largest[suspicious], output.nothing)), kind="stable")
        for where in places[by_error[:_MOST]]:
            index = _index(r, group, where)
            name = f"{among}{_called(output, group, where)}"
            part = _part(name, r[index].ravel(), d[index].ravel(), output.nothing, output.tolerance, usual)
            if _is_wrong(part, output.tolerance, len(group) == 1, fewest):
                yield part


def _few(output: _Output, group: tuple[int, ...], axes: tuple[int, ...]) -> Iterator[_Part]:
    """Slices of less values than make a scale, all of them wrong."""
    r, d = output.r, output.d
    far_smaller = (r > output.nothing) & (r <= FAR_SMALLER * output.whole)
    wrong = far_smaller & (d > max(GROSS, output.tolerance) * r) & (d > ROUNDED * output.whole)
    for where in np.argwhere(wrong.all(axis=axes)):
        largest, error = (float(np.max(each[_index(r, group, where)])) for each in (r, d))
        yield _Part(_called(output, group, where), largest, error, 1, 1, 1, 0.0)


def _index(r: np.ndarray, group: tuple[int, ...], where: np.ndarray) -> tuple[int | slice, ...]:
    """Of one slice."""
    index: list[int | slice] = [slice(None)] * r.ndim
    for axis, i in zip(group, where, strict=True):
        index[axis] = int(i)
    return tuple(index)


def _usual(
    r: np.ndarray, largest: np.ndarray, axes: tuple[int, ...], nothing: float, far: float
) -> tuple[float, float] | None:
    """Largest and mean |r| of the slice in the middle; None where it is not far smaller than the output."""
    alive = largest > nothing
    middle = float(np.median(largest[alive])) if alive.any() else np.inf
    return (middle, float(np.median(r.mean(axis=axes)[alive]))) if middle <= far else None


def _part(
    name: str, r: np.ndarray, d: np.ndarray, nothing: float, tolerance: float, usual: tuple[float, float]
) -> _Part:
    """A slice or cluster by its scale, or, where r is 0, by what is usual."""
    largest, gross = float(r.max()), max(GROSS, tolerance)
    if largest > nothing:
        decade = r >= largest / 10
        alive, count = int(np.count_nonzero(r > nothing)), int(np.count_nonzero(decade))
        middle = float(np.median(d[decade] / r[decade])) if float(np.median(d[decade])) > _STEPS else 0.0
        wrong = d > np.maximum(gross * np.where(decade, r, largest), _STEPS)
    else:
        alive, count, largest, wrong, middle = r.size, r.size, usual[0], d > gross * usual[1], 0.0
    p99 = float(np.percentile(d, 99, method="higher"))
    return _Part(name, largest, p99, alive, count, int(np.count_nonzero(wrong)), middle)


def _is_wrong(part: _Part, tolerance: float, coarse: bool, fewest: int) -> bool:
    if part.alive < fewest:
        return False
    bound = WRONG if part.alive >= _MANY else GROSS
    of_most = coarse and part.relative > max(bound, tolerance) and part.p99 > _STEPS
    of_middle = fewest == FEWEST <= part.decade and part.middle > max(MIDDLE, tolerance)
    return of_most or of_middle or part.wrong > max(SHARE * part.decade, fewest - 1)


def _called(output: _Output, group: tuple[int, ...], where: np.ndarray) -> str:
    words = []
    for axis, i in zip(group, where.tolist(), strict=True):
        if axis == 0:
            words.append(output.rows[i])
        else:
            words.append(f"column {i} (last axis)" if axis == output.r.ndim - 1 else f"index {i} of axis {axis}")
    return ", ".join(words)


# --- clusters ---------------------------------------------------------------------------------------------------------


def _clusters(outputs: Sequence[_Output]) -> Iterator[_Part]:
    """The wrong ones, and the wrong slices of those that an empty decade parts from larger values."""
    whole, nothing, tolerance = outputs[0].whole, outputs[0].nothing, outputs[0].tolerance
    if not whole or not any(output.d.any() for output in outputs):
        return
    r, d = (_flat([getattr(output, side) for output in outputs]) for side in ("r", "d"))
    for top, apart in _tops(r[r > nothing], whole):
        inside = r <= top
        name = f"values of about one magnitude, {int(inside.sum())} of {r.size},"
        part = _part(name, r[inside], d[inside], nothing, tolerance, (np.inf, np.inf))
        if _is_wrong(part, tolerance, True, FEWEST if apart else _FEWEST_OF_FINE):
            yield part
        if not apart:
            continue
        for output in outputs:
            kept = output.r <= top
            rest = _Output(output.r * kept, output.d * kept, output.rows, part.largest, nothing, tolerance)
            axes = range(output.r.ndim)
            yield from _slices(rest, [*((axis,) for axis in axes), *((0, axis) for axis in axes[1:])], _APART)


def _flat(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Without a copy of a single one."""
    return arrays[0].ravel() if len(arrays) == 1 else np.concatenate([each.ravel() for each in arrays])


def _tops(magnitudes: np.ndarray, whole: float) -> Iterator[tuple[float, bool]]:
    """The upper end of each cluster below the first decade, and whether the decade above it is empty."""
    if not magnitudes.size:
        return
    decades = np.clip(np.floor(-np.log10(magnitudes / whole)), 0, _DECADES).astype(int)
    counts = np.bincount(decades)
    for decade in range(1, len(counts)):
        here, above = int(counts[decade]), int(counts[decade - 1])
        apart = not above and int(counts[decade:].sum()) >= FEWEST and here > 0
        if apart or (here >= _MANY and here >= CLUSTER * above):
            yield whole * 10.0**-decade, apart


# --- masks ------------------------------------------------------------------------------------------------------------


def spread_along(values: np.ndarray, axis: int) -> np.ndarray:
    """The largest value minus the least along an axis, float64, 0 where there is none.

    What only says "not this one" is left out, for it has no part in what rounding makes of the others: NaN, Inf, and
    masks, which are values of MASK or less that are alike and far beyond all others (-1e4, logits - 1e9).
    """
    x = np.asarray(values, np.float64)
    kept = np.isfinite(x)
    while kept.any() and (least := float(x[kept].min())) <= MASK:
        others = kept & (x > ALIKE * least)
        if not others.any() or np.abs(x[others]).max() > -FAR_SMALLER * ALIKE * least:
            break
        kept = others
    low, high = np.where(kept, x, np.inf).min(axis=axis), np.where(kept, x, -np.inf).max(axis=axis)
    return np.asarray(np.maximum(high - low, 0.0))  # -Inf where nothing is kept
