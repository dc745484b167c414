"""Differences by sample, the worst first: NaN and Inf, then lost and new detections, then errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from truehalf.verification.metrics.detections import Matching
from truehalf.verification.metrics.outputs import errors_by_sample
from truehalf.verification.runs import Run

_ERRORS = ("box_error_px", "score_error", "low_score_error", "rank_error")


@dataclass(frozen=True)
class SampleFacts:
    """Differences on a sample: counts of detections, and the largest of each error; 0 where none were compared.

    Attributes:
        label_flips: detections of another class; of a classifier 1 if the best class is another.
        nonfinite: NaN and Inf of the file, where the reference is finite.
    """

    sample: str
    reference: int = 0
    matched: int = 0
    missed: int = 0
    label_flips: int = 0
    extra: int = 0
    box_error_px_max: float = 0.0
    score_error_max: float = 0.0
    low_score_error_max: float = 0.0
    rank_error_max: float = 0.0
    tensor_rms: float = 0.0
    nonfinite: int = 0

    @property
    def badness(self) -> tuple[float, ...]:
        """Sort key of a sample, the heaviest difference first; zeros if nothing differs."""
        largest = max(getattr(self, f"{name}_max") for name in _ERRORS)
        return (self.nonfinite, self.missed + self.extra, largest, self.tensor_rms)


def facts_by_sample(
    runs: Sequence[Run], plain: Sequence[str], matchings: Sequence[Matching], classes: str = ""
) -> list[SampleFacts]:
    """Measure a row for each sample, in their order; for a run whose axis 0 counts none, one.

    Args:
        plain: outputs that are judged by themselves.
        matchings: of the detections of each sample; empty where none were compared.
        classes: output whose best class counts; empty: none.
    """
    errors = errors_by_sample(runs, plain)
    places = [(run, row, name) for run in runs for row, name in enumerate(run.places)]
    rows = []
    for i, (run, row, name) in enumerate(places):
        found: dict[str, Any] = {}
        if run.rows and i < len(matchings):
            one = matchings[i]
            found = {
                "reference": one.reference,
                "matched": one.reference - one.missed,
                "missed": one.missed,
                "label_flips": len(one.relabelled),
                "extra": len(one.extra),
                **{f"{name}_max": _largest(getattr(one, name)) for name in _ERRORS},
            }
        elif classes:
            found = {"label_flips": int(run.reference[classes][row].argmax() != run.candidate[classes][row].argmax())}
        nonfinite = sum(_nonfinite(run, row, output) for output in run.candidate)
        rows.append(SampleFacts(name, tensor_rms=float(errors[i]), nonfinite=nonfinite, **found))
    return rows


def worst_samples(rows: Sequence[SampleFacts], count: int) -> list[int]:
    """Order positions of the samples that differ most; samples in which neither the reference nor the file detects
    anything come last.
    """
    order = sorted(range(len(rows)), key=lambda i: (*rows[i].badness, rows[i].reference > 0), reverse=True)
    return order[:count]


def _largest(errors: np.ndarray) -> float:
    return float(np.abs(errors).max(initial=0.0))


def _nonfinite(run: Run, row: int, output: str) -> int:
    """Count NaN and Inf of a sample; where the reference has a value for each, those that it has not."""
    values, expected = np.asarray(run.candidate[output]), np.asarray(run.reference[output])
    if values.dtype.kind != "f":
        return 0
    alike = values.shape == expected.shape
    if run.rows and values.ndim and (len(values) == run.rows or not alike):
        values, expected = values[row : row + 1], expected[row : row + 1]
    return int((~np.isfinite(values) & (np.isfinite(expected) if alike else True)).sum())
