"""Histograms of errors by magnitude.

Bins are quarters of a decade, the same for every file and output, so that histograms of two runs compare bin by bin:
    bin k holds 10^(k/4) <= |other - reference| < 10^((k+1)/4)
Exact zeros have no magnitude, and a NaN or Inf no error: both are counted apart.
"""

from __future__ import annotations

import numpy as np

from truehalf.report.drawings import Histogram

_PER_DECADE = 4
_LOWEST, _HIGHEST = -60, 24  # 1e-15 and 1e6: smaller errors fall into the first bin, larger ones into the last


class ErrorHistogram(Histogram):
    """Beside the bins: how many values there are, equal ones, and those where either side is NaN or Inf."""

    elements: int
    zero: int
    nonfinite: int


def error_histogram(reference: np.ndarray, other: np.ndarray) -> ErrorHistogram:
    """Count |other - reference| by magnitude.

    Args:
        reference, other: numbers of one shape.

    Returns:
        elements; zero: equal values; nonfinite: values where either side is NaN or Inf; edges [n + 1] and counts [n]
        of the bins from the first filled one to the last (both empty where there is none).
    """
    a, b = np.asarray(reference, np.float64).ravel(), np.asarray(other, np.float64).ravel()
    finite = np.isfinite(a) & np.isfinite(b)
    errors = np.abs(b[finite] - a[finite])
    positive = errors[errors > 0]
    facts: ErrorHistogram = {
        "elements": int(a.size),
        "zero": int(len(errors) - len(positive)),
        "nonfinite": int(a.size - finite.sum()),
        "edges": [],
        "counts": [],
    }
    if not len(positive):
        return facts
    bins = np.clip(np.floor(np.log10(positive) * _PER_DECADE).astype(int), _LOWEST, _HIGHEST)
    counts = np.bincount(bins - bins.min())
    edges = 10.0 ** (np.arange(bins.min(), bins.max() + 2) / _PER_DECADE)
    return {**facts, "edges": [float(f"{edge:.6g}") for edge in edges], "counts": counts.tolist()}
