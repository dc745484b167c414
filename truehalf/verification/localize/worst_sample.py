"""The sample on which two files differ most: new NaN and Inf first, then detections lost and found, then the error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from truehalf.verification.compare.model_pair import Run
from truehalf.verification.metrics.detections import Matching


def worst_sample(runs: Sequence[Run], matchings: Sequence[Matching], beyond: Sequence[int]) -> tuple[Run, int] | None:
    """The run and, where axis 0 counts samples, its sample that differ most; None when nothing differs.

    Args:
        runs: at least one.
        matchings: by sample; empty where there are no detections.
        beyond: by sample, how many of its queries are beyond the tensor rule; empty where there are none.
    """
    worst: tuple[int, int, float, int] = (0, 0, 0.0, 0)
    where, number = None, 0
    for run in runs:
        for row in range(max(run.rows, 1)):
            one = matchings[number] if run.rows and number < len(matchings) else None
            lost = one.missed + len(one.extra) if one else 0
            queries = beyond[number] if run.rows and number < len(beyond) else 0
            badness = (_nonfinite_new(run, row), lost, _error(run, row, one), queries)
            if badness > worst:
                worst, where = badness, (run, row if run.rows else 0)
            number += 1
    return where


def _rows(run: Run, row: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The floating-point outputs of one sample, or of the run."""
    for name, a in run.reference.items():
        b = run.candidate[name]
        if a.dtype.kind == "f" and a.shape == b.shape:
            by_row = run.rows and a.ndim and len(a) == run.rows
            yield (a[row], b[row]) if by_row else (a, b)


def _nonfinite_new(run: Run, row: int) -> int:
    return sum(int((np.isfinite(a) & ~np.isfinite(b)).sum()) for a, b in _rows(run, row))


def _error(run: Run, row: int, matching: Matching | None) -> float:
    """The largest error of a sample; of detections that of its boxes and scores, for rows move among equals."""
    if matching is not None:
        scores = (np.abs(matching.score_error), matching.low_score_error, matching.rank_error)
        spread = [matching.box_error_px, *scores]
        return float(max(each.max(initial=0.0) for each in spread))
    worst = 0.0
    for a, b in _rows(run, row):
        both = np.isfinite(a) & np.isfinite(b)
        largest = float(np.abs(a[both]).max(initial=0.0))
        error = float(np.abs(a[both].astype(np.float64) - b[both]).max(initial=0.0))
        worst = max(worst, error / largest if largest else float(error > 0))
    return worst
