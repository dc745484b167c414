"""Variations of a sample stay within what can occur, and differ from the sample."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from truehalf.exporting.variations import CHANGES, FLAT, disturbed, variations
from truehalf.io_spec.spec import InputSpec, IoSpec

ALL = {**CHANGES, **FLAT}


def of(entry: dict[str, Any], *arrays: np.ndarray) -> dict[str, np.ndarray]:
    seen = [{"x": array} for array in arrays]
    spec = IoSpec.from_json({"inputs": [{"name": "x"} | entry]})
    return {said: feed["x"] for said, feed in variations(spec, seen[0], seen, ALL)}


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(("top", "dtype"), [(1, "float32"), (255, "float32"), (255, "uint8")])
def test_pictures_stay_within_what_the_preprocessing_gives(layout: str, top: int, dtype: str) -> None:
    mean, std = ([0.0] * 3, [1.0] * 3) if dtype == "uint8" else ([0.4, 0.5, 0.6], [0.2, 0.3, 0.4])
    entry = {"kind": "images", "range": [0, top], "channels": "RGB", "layout": layout, "normalization": {
        "mean": mean, "std": std, "where": "before the graph"}}  # fmt: skip
    shape, axes = ((1, 3, 4, 4), (1, 3, 1, 1)) if layout == "NCHW" else ((1, 4, 4, 3), (1, 1, 1, 3))
    pixels = np.random.default_rng(0).uniform(0.3 * top, 0.6 * top, shape)
    picture = ((pixels - np.reshape(mean, axes)) / np.reshape(std, axes)).astype(dtype)
    made = of(entry, picture)
    assert len(made) == len(ALL) and all(each.shape == shape and each.dtype == dtype for each in made.values())
    back = {said: each * np.reshape(std, axes) + np.reshape(mean, axes) for said, each in made.items()}
    assert all(each.min() > -1e-3 * top and each.max() < 1.001 * top for each in back.values())
    assert back["noise"].min() < 1e-3 * top and back["all least"].max() < 1e-3 * top
    assert back["dim"].mean() < 0.3 * top < 0.7 * top < back["bright"].mean()


@given(st.lists(st.integers(-(2**31), 2**31), min_size=2, max_size=12), st.sampled_from(["int32", "int64", "uint8"]))
def test_integers_are_those_that_were_seen(values: list[int], dtype: str) -> None:
    tokens = np.array(values).astype(dtype)[None]
    made = of({"kind": "tensor", "dtype": dtype}, tokens)
    assert all(set(each.ravel().tolist()) <= set(tokens.ravel().tolist()) for each in made.values())
    assert all(each.dtype == dtype and each.shape == tokens.shape for each in made.values())
    assert bool(made) == (len(set(tokens.ravel().tolist())) > 1)


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=2, max_size=12))
def test_floats_stay_between_those_that_were_seen(values: list[float]) -> None:
    rows = np.array([values, values[::-1]], np.float32)
    made = of({"kind": "tensor"}, rows[:1], rows[1:])
    slack = 1e-5 * np.abs(rows).max() + 1e-6
    assert all(rows.min() - slack <= each.min() and each.max() <= rows.max() + slack for each in made.values())


def test_booleans_are_turned() -> None:
    made = of({"kind": "tensor"}, np.array([[True, False, True]]))
    assert made["inverted"].tolist() == [[False, True, False]]
    assert made["all least"].tolist() == [[False] * 3]


def test_inputs_are_varied_together_and_sizes_are_left() -> None:
    spec = IoSpec((InputSpec("a"), InputSpec("b"), InputSpec("size", "picture_size")))
    base = {name: np.array([[1.0, 2.0]], np.float32) for name in ("a", "b")} | {"size": np.array([[64, 64]])}
    made = dict(variations(spec, base, [base], ALL))
    assert made["inverted"]["a"].tolist() == made["inverted"]["b"].tolist() == [[2, 1]]
    assert all(feed["size"].tolist() == [[64, 64]] for feed in made.values())


def test_rounding_touches_floats_alone() -> None:
    feed = {"x": np.array([0.0, 1.0], np.float32), "n": np.array([3])}
    other = disturbed(feed, np.random.default_rng(0))
    assert other["n"].tolist() == [3] and other["x"][0] == 0 and 0 < abs(other["x"][1] - 1) < 1e-4
