"""Differences by sample, the worst first: NaN and Inf, then lost and new detections, then errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from truehalf.verification.measured import Measured
from truehalf.verification.metrics.decoded import NOTHING
from truehalf.verification.metrics.detections import match
from truehalf.verification.metrics.plain_outputs import errors_by_sample
from truehalf.verification.runs import Run


@dataclass(frozen=True)
class SampleFacts:
    """What differs on a sample; counts of detections, and the largest of each error; 0 where none were compared.

    Attributes:
        nonfinite: NaN and Inf of the file, where the reference is finite.
    """

    sample: str
    reference: int
    matched: int
    missed: int
    label_flips: int
    extra: int
    box_error_px_max: float
    score_error_max: float
    low_score_error_max: float
    rank_error_max: float
    tensor_rms: float
    nonfinite: int


def facts_by_sample(seen: Measured) -> list[SampleFacts]:
    """A row for each sample, in their order; for a run whose axis 0 counts none, one. Outputs that are judged by
    themselves have a tensor error (truehalf.verification.metrics.plain_outputs).
    """
    errors, matchings = errors_by_sample(seen.runs, seen.plain), seen.matchings
    nothing = match(NOTHING, NOTHING)
    places = [(run, row, name) for run in seen.runs for row, name in enumerate(run.names[: max(run.rows, 1)])]
    rows = []
    for i, (run, row, name) in enumerate(places):
        one = matchings[i] if run.rows and i < len(matchings) else nothing
        spreads = (one.box_error_px, one.score_error, one.low_score_error, one.rank_error)
        box, score, low, rank = (float(np.abs(each).max(initial=0.0)) for each in spreads)
        nonfinite = sum(_nonfinite(run, row, output) for output in run.candidate)
        found, relabelled, extra = one.reference - one.missed, len(one.relabelled), len(one.extra)
        detections = one.reference, found, one.missed, relabelled, extra
        rows.append(SampleFacts(name, *detections, box, score, low, rank, float(errors[i]), nonfinite))
    return rows


def worst_samples(rows: Sequence[SampleFacts], count: int) -> list[int]:
    """Positions of the samples that differ most, by rows of `facts_by_sample`; samples in which neither the reference
    nor the file finds anything come last.
    """

    def key(i: int) -> tuple[float, ...]:
        return (*badness(rows[i]), rows[i].reference > 0)

    return sorted(range(len(rows)), key=key, reverse=True)[:count]


def worst_sample(seen: Measured) -> tuple[Run, int] | None:
    """The run and its sample that differ most; None when nothing differs."""
    rows = facts_by_sample(seen)
    places = [(run, row) for run in seen.runs for row in range(max(run.rows, 1))]
    (worst,) = worst_samples(rows, 1)
    return places[worst] if any(badness(rows[worst])) else None


def badness(row: SampleFacts) -> tuple[float, ...]:
    """Of a row, what makes a sample worse than another, the heaviest first; nothing but 0 where nothing differs."""
    spreads = (row.box_error_px_max, row.score_error_max, row.low_score_error_max, row.rank_error_max)
    return (row.nonfinite, row.missed + row.extra, max(spreads), row.tensor_rms)


def _nonfinite(run: Run, row: int, output: str) -> int:
    """NaN and Inf of a sample; where the reference has a value for each, those that it has not."""
    values, expected = np.asarray(run.candidate[output]), np.asarray(run.reference[output])
    if values.dtype.kind != "f":
        return 0
    alike = values.shape == expected.shape
    if run.rows and values.ndim and (len(values) == run.rows or not alike):
        values, expected = values[row : row + 1], expected[row : row + 1]
    return int((~np.isfinite(values) & (np.isfinite(expected) if alike else True)).sum())
