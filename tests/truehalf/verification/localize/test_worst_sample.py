"""Which sample differs most."""

from __future__ import annotations

import numpy as np

from tests.truehalf.verification.detected import REFERENCE, edited
from truehalf.verification.compare.model_pair import Run
from truehalf.verification.localize.worst_sample import worst_sample
from truehalf.verification.metrics.detections import match

ZERO = np.zeros((3, 4), np.float32)


def run_of(candidate: np.ndarray, rows: int = 3, feed: int = 0) -> Run:
    names = [f"s{i}" for i in range(rows or 1)]
    return Run(feed, 0, rows, names, {"y": ZERO + 1}, {"y": candidate}, None)


def test_nothing_differs() -> None:
    assert worst_sample([run_of(ZERO + 1)], [], []) is None


def test_what_is_not_finite_comes_before_a_large_error() -> None:
    candidate = ZERO + 1
    candidate[0, 0], candidate[2, 1] = 50, np.nan
    found = worst_sample([run_of(candidate)], [], [])
    assert found is not None and found[1] == 2


def test_of_runs_that_count_no_samples_the_run() -> None:
    runs = [run_of(ZERO + 1 + error, rows=0, feed=feed) for feed, error in enumerate((0.1, 0.3, 0.2))]
    found = worst_sample(runs, [], [])
    assert found == (runs[1], 0)


def test_lost_detections_come_before_errors_and_those_before_queries() -> None:
    lost, moved = match(REFERENCE, edited(1, label=4)), match(REFERENCE, edited(0, shift=0.5))
    same = match(REFERENCE, REFERENCE)
    run = run_of(ZERO + 1)
    for matchings, beyond, expected in (
        ([moved, lost, same], [0, 0, 9], 1),
        ([same, same, moved], [9, 0, 0], 2),
        ([same, same, same], [0, 9, 1], 1),
    ):
        found = worst_sample([run], matchings, beyond)
        assert found is not None and found[1] == expected
