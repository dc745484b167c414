"""Parts of an output that its largest value hides from the tensor rule."""

from __future__ import annotations

import numpy as np
import pytest

from tests.messages import expect
from truehalf.verification.metrics.scales import COLUMNS, masked_by_scale

RNG = np.random.default_rng(0)
SCALES = np.array([1000, 1000, 1000, 1000, 1], np.float32)
A = (RNG.uniform(0.1, 1, (40, 5)) * SCALES).astype(np.float32)
NAMES = [f"s{i}" for i in range(40)]


def hidden(a: np.ndarray, b: np.ndarray, tolerance: float = 0.01, names: list[str] = NAMES) -> str | None:
    return masked_by_scale("y", [(a, b.astype(np.float32))], tolerance, [names])


def test_a_column_of_another_scale_that_is_wrong() -> None:
    b = A.copy()
    b[:, 4] = b[::-1, 4]
    scales = [f"{A[:, 4].max():.4g}", f"{A.max():.4g}"]
    expect(str(hidden(A, b)), "hidden-by-scale", "column 4", "'y'", *scales)
    assert hidden(A, b, tolerance=2.0) is None


def test_rounding_to_float16_is_no_fault() -> None:
    assert hidden(A, A.astype(np.float16)) is None
    assert hidden(A * 1e-5, (A * 1e-5).astype(np.float16)) is None  # the small column is subnormal
    assert hidden(A, A) is None


def test_single_values_and_a_scale_that_is_near_are_not_said() -> None:
    many = np.repeat(A, 5, axis=0)
    b = many.copy()
    b[:1, 4] += 0.5
    assert hidden(many, b) is None
    b[:2, 4] += 0.5
    assert hidden(many, b) is not None
    near = A * np.array([1, 1, 1, 1, 200], np.float32)
    assert hidden(near, near * np.array([1, 1, 1, 1, 1.2])) is None


def test_what_is_zero_but_for_rounding_has_no_scale() -> None:
    a = A * np.array([1, 1, 1, 1, 1e-4], np.float32)
    assert hidden(a, a * np.array([1, 1, 1, 1, 0])) is None


def test_a_sample_of_another_scale_that_is_wrong() -> None:
    a = RNG.uniform(0.1, 1, (40, 5)).astype(np.float32)
    a[7] /= 1000
    b = a.copy()
    b[7] *= 1.5
    expect(str(hidden(a, b)), "hidden-by-scale", "s7", "'y'", "50%")
    expect(str(hidden(a, b, names=["feed"])), "hidden-by-scale", "row 7", "axis 0", "feed", "'y'")
    runs = [(a[i : i + 1], b[i : i + 1]) for i in range(40)]
    text = masked_by_scale("y", runs, 0.01, [[name] for name in NAMES])
    expect(str(text), "hidden-by-scale", "s7", "'y'")


def test_a_few_values_are_no_scale() -> None:
    a = np.array([[5.0, 4.0, 0.01, 3.0, 2.0, 6.0]] * 3, np.float32)
    assert hidden(a, a + 0.004, names=["feed"]) is None


def test_what_is_not_finite_is_the_tensor_rules() -> None:
    a, b = A.copy(), A.copy()
    a[0, 4], b[1, 4] = np.inf, np.nan
    assert hidden(a, b) is None
    assert masked_by_scale("y", [(A, A[:3])], 0.01, [NAMES]) is None
    assert masked_by_scale("y", [(A.astype(np.int64), A.astype(np.int64))], 0.01, [NAMES]) is None


# --- every axis, and every place --------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(6, 9), (5, 6, 7), (4, 5, 6, 7), (3, 4, 3, 5, 4)])
@pytest.mark.parametrize("change", [0.0, -1.0, 1.4])
def test_what_stands_beside_a_large_slice_of_any_axis(shape: tuple[int, ...], change: float) -> None:
    for axis in range(1, len(shape)):
        a = RNG.uniform(0.4, 1, shape).astype(np.float32)
        a[(slice(None),) * axis + (1,)] *= 900
        wrong, names = np.where(a > 10, a, change * a), [f"s{i}" for i in range(shape[0])]
        expect(str(hidden(a, wrong, names=names)), "hidden-by-scale", "'y'")
        assert hidden(a, a.astype(np.float16), names=names) is None
        one = a.copy()
        one[(slice(None),) * axis + (0,)] *= change
        expect(
            str(hidden(a, one, names=names)),
            "hidden-by-scale",
            "column 0" if axis == len(shape) - 1 else f"index 0 of axis {axis}",
        )


def test_a_slice_of_one_sample() -> None:
    a = RNG.uniform(0.4, 1, (6, 5, 40)).astype(np.float32)
    for sample in range(6):
        a[sample, sample % 3] *= 900  # so that no slice of one axis is small but the last two
    b = a.copy()
    b[4, 2] *= -1
    expect(str(hidden(a, b, names=NAMES[:6])), "hidden-by-scale", "sample s4", "index 2 of axis 1")


def test_values_of_one_magnitude_wherever_they_stand() -> None:
    a = RNG.normal(0, 1, (7, 11, 13)).astype(np.float32)
    large = RNG.uniform(0, 1, a.shape) < 0.5
    a[large] = -1e4
    b = np.where(large, a, a[::-1] * ~large[::-1])
    said = str(hidden(a, b, names=NAMES[:7]))
    expect(said, "hidden-by-scale", "'y'", f"{np.abs(a).max():.4g}")
    vector = a.ravel()
    assert masked_by_scale("y", [(vector, np.where(vector < -99, vector, 0))], 0.01, [["feed"]]) is not None
    assert masked_by_scale("y", [(vector, vector.astype(np.float16))], 0.01, [["feed"]]) is None


def test_the_middle_of_a_bell_is_no_scale_of_its_own() -> None:
    a = RNG.normal(0, 1, (40, 30, 10)).astype(np.float32)
    a[0, 0, 0] = 9
    assert hidden(a, a + RNG.normal(0, 0.01, a.shape)) is None


def test_what_was_zero_is_held_against_its_like() -> None:
    a = RNG.uniform(0.5, 1, (6, 5, 8)).astype(np.float32)
    a[:, 0] *= 800
    a[:, 3] = 0
    alive, faint = a.copy(), a.copy()
    alive[:, 3], faint[:, 3] = 0.7, 0.01
    expect(str(hidden(a, alive, names=NAMES[:6])), "hidden-by-scale", "index 3 of axis 1")
    assert hidden(a, faint, names=NAMES[:6]) is None
    assert hidden(0 * a, alive - a, names=NAMES[:6]) is None, "nothing here has a scale"


def test_runs_of_other_shapes_and_numbers() -> None:
    pairs = []
    for width in (6, 9):
        a = RNG.uniform(0.4, 1, (5, width)).astype(np.float32)
        a[:, 0] *= 900
        pairs.append((a, np.where(a > 10, a, 0)))
    expect(str(masked_by_scale("y", pairs, 0.01, [["one"], ["two"]])), "hidden-by-scale", "'y'")
    scalars = [(np.array(value), np.array(value + 1)) for value in (1000.0, 10.0, 20.0)]
    assert masked_by_scale("y", scalars, 0.01, [["a"], ["b"], ["c"]]) is None
    vectors = [(np.float32([900, 1 + i, 2]), np.float32([900, 0, 2])) for i in range(5)]
    assert masked_by_scale("y", vectors, 0.01, [["feed"]] * 5) is not None


@pytest.mark.parametrize("shape", [(0, 3), (0,), (2, 0), (0, 2, 2)])
@pytest.mark.parametrize("others", [(4, 3), (9,), (3, 2, 2)])
def test_a_run_without_values_is_none(shape: tuple[int, ...], others: tuple[int, ...]) -> None:
    rng, nothing = np.random.default_rng(8), np.zeros(shape, np.float32)
    some = [(r, r * np.float32(1.001)) for r in rng.standard_normal((2, *others)).astype(np.float32)]
    small = (np.array([100, 1e-3], np.float32), np.array([100, 9e-1], np.float32))
    for pairs, wrong in ((some, False), ([*some, small], True)):
        told = masked_by_scale("o", [(nothing, nothing), *pairs], 0.01, [[f"{i}"] for i in range(1 + len(pairs))])
        assert (told is not None) == wrong


def test_rows_that_may_be_others_are_asked_for_columns_alone() -> None:
    a = A.copy()
    a[7] /= 1000
    b = a.copy()
    b[7] *= 1.5
    assert masked_by_scale("y", [(a, b)], 0.01, [NAMES], COLUMNS) is None and hidden(a, b) is not None
    b[:, 4] *= -1
    expect(str(masked_by_scale("y", [(a, b)], 0.01, [NAMES], COLUMNS)), "hidden-by-scale", "column 4")
    assert masked_by_scale("y", [(a[:, 0], b[:, 0])], 0.01, [NAMES], COLUMNS) is None


@pytest.mark.parametrize(
    ("reference", "candidate"),
    [
        ([[600, 1, 2, 3]], [[600, 0, 0, 0]]),
        ([[600, 1, 2]], [[600, 0, 0]]),
        ([[600, 1], [601, 2]], [[600, 0], [601, 0]]),
        ([[500], [1], [2]], [[500], [-1], [-2]]),
        ([[[-400, 3]], [[-401, 2]]], [[[-400, 9]], [[-401, 9]]]),
    ],
)
def test_few_values_beside_a_large_one(reference: object, candidate: object) -> None:
    a, b = (np.array(side, np.float32)[:, None] for side in (reference, candidate))
    names = [[str(i)] for i in range(len(a))]
    expect(str(masked_by_scale("y", [*zip(a, b, strict=True)], 0.01, names)), "hidden-by-scale", "'y'")
    assert masked_by_scale("y", [*zip(a, a + np.abs(a).max() * 2.0**-11, strict=True)], 0.01, names) is None
