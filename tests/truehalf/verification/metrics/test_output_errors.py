"""Errors of one output: by the yardstick, of exact values, of NaN, Inf and nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from truehalf.verification.metrics.half_steps import Response
from truehalf.verification.metrics.outputs import OutputErrors, output_errors

RNG = np.random.default_rng(0)
X = RNG.normal(0, 1, (8, 5, 40))


def errors_of(
    reference: Sequence[float] | np.ndarray,
    other: Sequence[float] | np.ndarray,
    draws: Callable[[], Sequence[Sequence[np.ndarray]]] = tuple,
) -> OutputErrors:
    pair = np.asarray(reference), np.asarray(other)
    names = [f"s{i}" for i in range(len(pair[0]))]
    return output_errors("y", [pair], [names], 0.005, Response(lambda: "a pixel", draws))


def off_by(share: float, seed: int) -> np.ndarray:
    return np.asarray(X * (1 + share * np.random.default_rng(seed).choice([-1, 1], X.shape)))


def test_errors_of_known_tensors() -> None:
    errors = errors_of([1.0, -2.5, 0.25, 4.0], [1.0, -3.0, 0.251, 4.0])
    assert errors.elements == 4 and errors.max_abs == 0.5
    assert errors.rms == pytest.approx(0.5 / np.sqrt(1 + 6.25 + 0.0625 + 16), rel=1e-4)


# --- the yardstick ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "response", "passed"),
    [
        (0.004, None, True),  # within the floor: nothing is asked
        (0.006, 0.0, False),
        (0.006, 0.0035, True),  # less than twice what half a step does
        (0.006, 0.0025, False),
        (0.03, 0.2, False),  # beyond the cap, whatever half a step does
    ],
)
def test_an_output_is_held_against_what_half_a_step_of_the_input_does(
    error: float, response: float | None, passed: bool
) -> None:
    def draws() -> list[list[np.ndarray]]:
        assert response is not None, "not asked for"
        return [[off_by(response, seed)] for seed in (2, 3)]

    errors = errors_of(X, off_by(error, 1), draws)
    assert errors.passed is passed and errors.rms == pytest.approx(error)
    assert errors.response is None if response is None else errors.response == pytest.approx(response)
    if response is not None:
        assert f"by {error:.2%}; half a step of a pixel moves it by {response:.2%}" in errors.reason


@pytest.mark.parametrize(("axis", "part"), [(0, "sample s2"), (1, "channel 2 of axis 1"), (2, "channel 2 of axis 2")])
def test_a_part_that_is_wrong_fails_and_is_named(axis: int, part: str) -> None:
    """One of 400 parts, off by 7 %: the error of the output is within the floor."""
    shape = [20, 20, 20]
    shape[axis] = 400
    values = np.random.default_rng(1).normal(0, 1, shape)
    other, index = values.copy(), (slice(None),) * axis + (2,)
    other[index] *= 1.07
    errors = errors_of(values, other)
    assert errors.passed is False and errors.rms is not None and errors.rms < 0.005 and part in errors.reason


# --- exact values -----------------------------------------------------------------------------------------------------


def test_exact_values_that_half_a_step_turns_too_may_be_others() -> None:
    classes = RNG.integers(0, 5, (4, 1000))
    other, moved = classes.copy(), classes.copy()
    other[:, :8] += 1
    moved[:, 4:12] += 1
    assert errors_of(classes, other).passed is False
    assert errors_of(classes, other, lambda: [[moved]]).passed
    elsewhere = classes.copy()
    elsewhere[:, 500:508] += 1
    assert errors_of(classes, other, lambda: [[elsewhere]]).passed is False


# --- what is not finite -----------------------------------------------------------------------------------------------


def test_nan_and_inf_at_the_same_places_are_values() -> None:
    reference = np.array([np.nan, np.inf, -np.inf, 1.0], np.float32)
    errors = errors_of(reference, reference)
    assert errors.passed and errors.max_abs == 0
    assert (errors.nan_reference, errors.inf_reference, errors.nan, errors.inf) == (1, 2, 1, 2)


def test_what_is_newly_not_finite_is_told_apart() -> None:
    assert errors_of([np.nan, np.inf, 1.0, 2.0], [np.inf, np.inf, np.nan, 2.0]).nonfinite_new == 1


def test_another_shape_and_nothing() -> None:
    assert errors_of(np.zeros((2, 3)), np.zeros((2, 4))).passed is False
    assert errors_of(np.zeros((2, 0)), np.zeros((2, 0))).passed is None
