"""Errors of one tensor: known ones, and those of NaN, Inf and nothing."""

from __future__ import annotations

import numpy as np
import pytest

from tests.messages import raises
from truehalf.verification.metrics.output_errors import tensor_errors


def test_errors_of_known_tensors() -> None:
    errors = tensor_errors(np.array([1.0, -2.0, 0.0, 4.0]), np.array([1.0, -2.5, 0.001, 4.0]))
    assert errors.elements == 4
    assert errors.max_abs == 0.5
    assert errors.p99_abs == 0.5
    assert errors.mean_abs == pytest.approx(0.501 / 4)
    assert errors.max_rel == pytest.approx(0.25)  # 0.001 / floor (1e-3 * 4) and 0.5 / 2 are both 0.25


def test_floor_keeps_relative_error_of_small_values_small() -> None:
    errors = tensor_errors(np.array([1e-9, 10.0]), np.array([2e-9, 10.0]))
    assert errors.max_rel == pytest.approx(1e-7)  # 1e-9 / floor (1e-3 * 10)


def test_nan_never_equals_nan_and_equal_infinities_do() -> None:
    reference = np.array([np.nan, np.inf, -np.inf, 1.0], np.float32)
    errors = tensor_errors(reference, reference)
    assert errors.max_abs == np.inf
    assert (errors.nan_reference, errors.inf_reference) == (1, 2)
    assert (errors.nan, errors.inf) == (1, 2)
    assert tensor_errors(reference[1:], reference[1:]).max_abs == 0


def test_infinity_against_a_number_is_infinitely_far() -> None:
    errors = tensor_errors(np.array([1.0, 2.0]), np.array([1.0, np.inf]))
    assert errors.max_abs == errors.max_rel == np.inf
    assert (errors.inf_reference, errors.inf) == (0, 1)


def test_integers_and_empty_tensors() -> None:
    assert tensor_errors(np.array([3, 5]), np.array([3, 9])).max_abs == 4
    assert tensor_errors(np.zeros((0, 4)), np.zeros((0, 4))).max_abs == 0


def test_shapes_that_differ_are_refused() -> None:
    with raises("not-comparable", "[2, 3]", "[3, 2]"):
        tensor_errors(np.zeros((2, 3)), np.zeros((3, 2)))


# --- direction, noise, steps ------------------------------------------------------------------------------------------


def test_cosine_and_noise_of_known_vectors() -> None:
    errors = tensor_errors(np.array([3.0, 4.0]), np.array([3.0, 4.5]))
    assert errors.cosine == pytest.approx((9 + 18) / (5 * np.hypot(3, 4.5)))
    assert errors.sqnr_db == pytest.approx(20.0)  # 25 / 0.25 = 100
    assert tensor_errors(np.array([3.0, 4.0]), np.array([-3.0, -4.0])).cosine == pytest.approx(-1.0)


@pytest.mark.parametrize(
    ("reference", "other", "cosine", "sqnr_db"),
    [
        ([1.0, 2.0], [1.0, 2.0], 1.0, np.inf),
        ([0.0, 0.0], [0.0, 0.0], 1.0, np.inf),
        ([0.0, 0.0], [1.0, 0.0], 0.0, -np.inf),
        ([1.0, 2.0], [0.0, 0.0], 0.0, 0.0),
        ([1.0, 2.0], [1.0, np.nan], None, -np.inf),
        ([np.nan, 2.0], [np.nan, 2.0], None, -np.inf),
        ([-np.inf, 2.0], [-np.inf, 2.0], 1.0, np.inf),
        ([1e200, 1e200], [1e200, -1e200], 0.0, None),
        ([], [], 1.0, np.inf),
    ],
)
def test_cosine_and_noise_at_the_edges(reference, other, cosine, sqnr_db) -> None:  # type: ignore[no-untyped-def]
    errors = tensor_errors(np.array(reference), np.array(other))
    assert errors.cosine == (None if cosine is None else pytest.approx(cosine))
    assert sqnr_db is None or errors.sqnr_db == pytest.approx(sqnr_db)


def test_what_is_newly_not_finite_is_told_apart() -> None:
    reference, other = np.array([np.nan, np.inf, 1.0, 2.0]), np.array([np.inf, np.inf, np.nan, 2.0])
    assert tensor_errors(reference, other).nonfinite_new == 1
