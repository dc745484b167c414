"""Columns and samples that the largest value of an output hides from the tensor rule."""

from __future__ import annotations

import numpy as np

from stages.parity.scales import hidden_by_scale
from tests.messages import expect

RNG = np.random.default_rng(0)
SCALES = np.array([1000, 1000, 1000, 1000, 1], np.float32)
A = (RNG.uniform(0.1, 1, (40, 5)) * SCALES).astype(np.float32)
NAMES = [f"s{i}" for i in range(40)]


def hidden(a: np.ndarray, b: np.ndarray, tolerance: float = 0.01, names: list[str] = NAMES) -> str | None:
    return hidden_by_scale("y", [(a, b.astype(np.float32))], tolerance, [names])


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
    text = hidden_by_scale("y", runs, 0.01, [[name] for name in NAMES])
    expect(str(text), "hidden-by-scale", "s7", "'y'")


def test_a_few_values_are_no_scale() -> None:
    a = np.array([[5.0, 4.0, 0.01, 3.0, 2.0, 6.0]] * 3, np.float32)
    assert hidden(a, a + 0.004, names=["feed"]) is None


def test_what_is_not_finite_is_the_tensor_rules() -> None:
    a, b = A.copy(), A.copy()
    a[0, 4], b[1, 4] = np.inf, np.nan
    assert hidden(a, b) is None
    assert hidden_by_scale("y", [(A, A[:3])], 0.01, [NAMES]) is None
    assert hidden_by_scale("y", [(A.astype(np.int64), A.astype(np.int64))], 0.01, [NAMES]) is None
