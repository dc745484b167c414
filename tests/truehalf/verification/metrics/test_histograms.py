"""Errors by magnitude: every value is counted once."""

import numpy as np
import pytest

from truehalf.verification.metrics.histograms import error_histogram


def test_every_value_is_counted_once() -> None:
    rng = np.random.default_rng(0)
    reference = rng.normal(0, 1, 1000)
    other = reference + rng.normal(0, 1, 1000) * 10.0 ** rng.uniform(-6, 1, 1000)
    other[:7] = reference[:7]
    other[7], reference[8], other[9] = np.nan, np.inf, -np.inf
    found = error_histogram(reference, other)
    assert found["elements"] == 1000 and found["zero"] == 7 and found["nonfinite"] == 3
    assert sum(found["counts"]) == 990 and len(found["edges"]) == len(found["counts"]) + 1
    assert found["counts"][0] and found["counts"][-1], "no empty bins at the ends"


@pytest.mark.parametrize(("error", "low"), [(1e-3, 1e-3), (1.7e-3, 1e-3), (1.9e-3, 10**-2.75), (1e-30, 1e-15)])
def test_a_bin_is_a_quarter_of_a_decade(error: float, low: float) -> None:
    found = error_histogram(np.zeros(1), np.array([error]))
    assert found["counts"] == [1] and found["edges"][0] == pytest.approx(low, rel=1e-5)
    assert found["edges"][1] / found["edges"][0] == pytest.approx(10**0.25, rel=1e-5)


@pytest.mark.parametrize("values", [np.zeros(3), np.zeros(0), np.full(2, np.nan)])
def test_without_an_error_there_are_no_bins(values: np.ndarray) -> None:
    found = error_histogram(values, values)
    assert found["counts"] == found["edges"] == []
    assert found["zero"] + found["nonfinite"] == found["elements"] == len(values)
