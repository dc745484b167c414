"""Which sample differs most."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.truehalf.verification.detected import REFERENCE, edited
from truehalf.config.verification import VerifyConfig
from truehalf.io_spec.spec import IoSpec
from truehalf.verification.localize.worst_sample import badness, facts_by_sample, worst_samples
from truehalf.verification.measured import Measured
from truehalf.verification.metrics.detections import Matching, match
from truehalf.verification.runs import Run

ZERO = np.zeros((3, 4), np.float32)


def run_of(candidate: np.ndarray, rows: int = 3, feed: int = 0, reference: np.ndarray = ZERO + 1) -> Run:
    names = [f"s{feed + i}" for i in range(rows or 1)]
    return Run(names, rows, {"y": reference}, {"y": candidate}, feed=feed)


def worst(runs: list[Run], matchings: Sequence[Matching] = ()) -> str:
    seen = Measured(runs, IoSpec(), VerifyConfig())
    seen.matchings = list(matchings)
    rows = facts_by_sample(seen)
    (found,) = worst_samples(rows, 1)
    return str(rows[found].sample)


def test_nothing_differs() -> None:
    assert not any(any(badness(row)) for row in facts_by_sample(Measured([run_of(ZERO + 1)], IoSpec(), VerifyConfig())))


def test_what_is_not_finite_comes_before_a_large_error() -> None:
    candidate = ZERO + 1
    candidate[0, 0], candidate[2, 1] = 50, np.nan
    assert worst([run_of(candidate)]) == "s2"


def test_what_is_not_finite_in_the_reference_either_is_no_fault() -> None:
    both = ZERO + 1
    both[0, 0] = np.inf
    candidate = both.copy()
    candidate[1, 0] += 0.1
    assert worst([run_of(candidate, reference=both)]) == "s1"


def test_of_runs_that_count_no_samples_the_run() -> None:
    runs = [run_of(ZERO + 1 + error, rows=0, feed=feed) for feed, error in enumerate((0.1, 0.3, 0.2))]
    assert worst(runs) == "s1"


def test_errors_are_measured_by_the_scale_of_all_samples() -> None:
    """As the yardstick does: half of a small value is no more than a hundredth of the output's scale."""
    reference = np.array([[0.01, 0.01], [1.0, 1.0]], np.float32)
    candidate = reference * np.array([[1.5, 1.0], [1.02, 1.0]], np.float32)
    assert worst([run_of(candidate, rows=2, reference=reference)]) == "s1"


def test_lost_detections_come_before_errors() -> None:
    lost, moved = match(REFERENCE, edited(1, label=4)), match(REFERENCE, edited(0, shift=0.5))
    same, little = match(REFERENCE, REFERENCE), match(REFERENCE, edited(0, shift=2e-4))
    for matchings, expected in (
        ([moved, lost, same], "s1"),
        ([same, same, moved], "s2"),
        ([little, match(REFERENCE, edited(0, score=0.65)), same], "s1"),
    ):
        assert worst([run_of(ZERO + 1)], matchings) == expected
