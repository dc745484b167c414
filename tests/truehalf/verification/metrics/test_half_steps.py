"""Inputs moved by half a step of what they are made of."""

from __future__ import annotations

import numpy as np
import pytest

from truehalf.io_spec.spec import InputSpec, IoSpec, Normalization
from truehalf.verification.metrics.half_steps import AUDIO, FLOAT16, PIXEL, moved, unit

RNG = np.random.default_rng(0)
BYTES = RNG.integers(0, 256, (2, 3, 16, 16))
STD = np.array([0.229, 0.224, 0.225]).reshape(3, 1, 1)


def steps(x: np.ndarray, spec: IoSpec | None = None) -> np.ndarray:
    """How far each value is moved."""
    values = np.ascontiguousarray(x)
    return np.asarray(moved({"x": values}, spec or IoSpec(), (0, 0))["x"].astype(np.float64) - values)


@pytest.mark.parametrize(
    ("name", "x", "made_of"),
    [
        ("pixels", np.float32(BYTES / 255), PIXEL),
        ("bytes as floats", np.float32(BYTES), PIXEL),
        ("bytes", np.uint8(BYTES), PIXEL),
        ("channels last", np.float32(BYTES.transpose(0, 2, 3, 1) / 255), PIXEL),
        ("audio", np.float32(np.round(RNG.normal(0, 0.1, (2, 512)) * 2**15) / 2**15), AUDIO),
        ("numbers", np.float32(RNG.normal(0, 1, (2, 512))), FLOAT16),
        ("tokens", np.float32(RNG.integers(0, 30000, (2, 9))), ""),
        ("ids", RNG.integers(0, 30000, (2, 9)), ""),
        ("mask", np.ones((2, 9), bool), ""),
    ],
)
def test_what_inputs_are_made_of(name: str, x: np.ndarray, made_of: str) -> None:
    assert unit(x) == made_of
    assert ("x" in moved({"x": x}, IoSpec(), (0,))) == bool(made_of)


@pytest.mark.parametrize(
    ("x", "step"),
    [
        (BYTES / 255, 1 / 255),
        (BYTES, 1.0),
        ((BYTES / 255 - 0.45) / STD, 1 / 255 / STD),
        (RNG.uniform(0, 1, (1, 3, 64, 64)), 1 / 255),
    ],
)
def test_pixels_move_by_half_a_step_of_their_grid_or_range(x: np.ndarray, step: float | np.ndarray) -> None:
    found = np.abs(steps(np.float32(x)))
    assert np.allclose(found, np.broadcast_to(step, found.shape) / 2, rtol=0.02, atol=1e-6)


def test_declared_pixels_move_by_what_is_declared() -> None:
    entry = InputSpec("x", range=(0, 1), normalization=Normalization(std=(0.5, 0.5, 0.25)))
    found = np.abs(steps(np.zeros((1, 3, 8, 8), np.float32), IoSpec(inputs=(entry,))))
    assert np.allclose(found[0, :, 0, 0], [1 / 255, 1 / 255, 2 / 255])


def test_bytes_move_by_one_in_one_of_four_places() -> None:
    found = steps(np.full((1, 3, 64, 64), 100, np.uint8))
    assert {*np.unique(found)} == {-1, 0, 1} and 0.2 < (found != 0).mean() < 0.3


def test_numbers_move_by_half_a_unit_in_the_last_place_of_float16() -> None:
    x = np.float32([[1.5, -3.1, 1000.7, 1e-3, 70000.0]])
    expected = [2.0**-11, 2.0**-10, 2.0**-2, 2.0**-21, 0.0]
    assert np.allclose(np.abs(steps(x))[0], expected, rtol=0.01)


def test_draws_differ_and_repeat() -> None:
    x = {"x": np.float32(BYTES / 255)}
    first, again, other = (moved(x, IoSpec(), seed)["x"] for seed in ((0, 1), (0, 1), (1, 1)))
    assert np.array_equal(first, again) and not np.array_equal(first, other)
