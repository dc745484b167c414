"""What the largest value of an output hides: a column or a sample of a far smaller scale, and wrong.

The tensor rule judges an output by its own largest value. So [N, 5] with four columns of 1e3 and one of 1 passes
whatever the last one holds. A part is a column (last axis) or a sample (axis 0). It is said to be hidden where

    its largest |r| is at most FAR_SMALLER of the output's, and more than FP32's rounding leaves of a zero
    its p99 |o - r| is beyond the tolerance and beyond WRONG of its own largest, and beyond FP16's smallest steps

p99 and WRONG, because single values at a kink and several per cent at small probabilities are rounding's doing; and
parts of a few values are passed over, because a few values near 0 are no scale.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from conf.codes import coded

FAR_SMALLER = 0.1
WRONG = 0.05  # relative error that rounding does not explain
FEWEST = 4  # values that make a scale
_NOTHING = 2.0**-20  # of the output's largest
_STEPS = 16 * 2.0**-24  # of FP16 below 2^-14, where it knows no smaller ones
Pairs = Sequence[tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class _Part:
    name: str
    largest: float
    error: float

    @property
    def relative(self) -> float:
        return self.error / self.largest


def hidden_by_scale(name: str, pairs: Pairs, tolerance: float, places: Sequence[Sequence[str]]) -> str | None:
    """A sentence on the worst column or sample that is hidden; None where there is none.

    Args:
        name: of the output.
        pairs: (reference, candidate) of each run, of one shape.
        tolerance: of the tensor rule.
        places: by run, what its samples are called; or what the run is called, where it has one name and several rows.
    """
    if not pairs or any(a.dtype.kind != "f" or a.shape != b.shape for a, b in pairs):
        return None
    whole = max(_largest(a) for a, _ in pairs)
    parts = [*_columns(pairs, whole), *_samples(pairs, places, whole)]
    wrong = [part for part in parts if part.relative > max(tolerance, WRONG) and part.error > _STEPS]
    if not wrong:
        return None
    worst = max(wrong, key=lambda part: part.relative)
    return coded(
        "hidden-by-scale",
        f"{worst.name} of output {name!r}, hidden by the scale of the others: its |values| reach {worst.largest:.4g}, "
        f"those of the output {whole:.4g}; its p99 |d| is {worst.error:.4g}, {worst.relative:.0%} of its own largest, "
        "and the tensor rule judges by the output's",
    )


def _columns(pairs: Pairs, whole: float) -> Iterator[_Part]:
    widths = {a.shape[-1] if a.ndim > 1 else 0 for a, _ in pairs}
    width = widths.pop()
    if widths or width < 2:
        return
    a, b = (np.concatenate([pair[side].reshape(-1, width) for pair in pairs]) for side in (0, 1))
    if len(a) < FEWEST:
        return
    largest = np.where(np.isfinite(a), np.abs(a), 0).max(axis=0)
    for column in np.flatnonzero(_is_far_smaller(largest, whole)):
        part = _Part(f"column {column} (last axis)", float(largest[column]), _p99(a[:, column], b[:, column]))
        yield part


def _samples(pairs: Pairs, places: Sequence[Sequence[str]], whole: float) -> Iterator[_Part]:
    if sum(len(a) if a.ndim > 1 else 0 for a, _ in pairs) < 2:
        return
    for (a, b), called in zip(pairs, places, strict=True):
        if a.ndim < 2 or not a.size or a[0].size < FEWEST:
            continue
        largest = np.where(np.isfinite(a), np.abs(a), 0).max(axis=tuple(range(1, a.ndim)))
        for row in np.flatnonzero(_is_far_smaller(largest, whole)):
            name = f"sample {called[int(row)]}" if len(called) == len(a) else f"row {row} (axis 0) on {called[0]}"
            yield _Part(name, float(largest[row]), _p99(a[row], b[row]))


def _is_far_smaller(largest: np.ndarray, whole: float) -> np.ndarray:
    return np.asarray((largest <= FAR_SMALLER * whole) & (largest > _NOTHING * whole))


def _largest(values: np.ndarray) -> float:
    return float(np.abs(values[np.isfinite(values)]).max(initial=0.0))


def _p99(a: np.ndarray, b: np.ndarray) -> float:
    """Of |o - r| where both are finite; 0 where nothing is."""
    both = np.isfinite(a) & np.isfinite(b)
    apart = np.abs(a[both].astype(np.float64) - b[both])
    return float(np.percentile(apart, 99, method="higher")) if apart.size else 0.0
