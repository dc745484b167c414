"""Sizes that were not traced: which ones are tried, and which axis is blamed."""

from __future__ import annotations

import numpy as np
import pytest

from tests.truehalf.models.refusing import in_order
from truehalf.data.preprocessing import Preprocessing
from truehalf.io_spec.spec import InputSpec
from truehalf.models.declared import images_input
from truehalf.models.sizes import at_other_sizes, other_axes, other_sides, refusal, step, varying_axes


@pytest.mark.parametrize(("side", "by"), [(640, 32), (224, 32), (48, 16), (518, 14), (300, 4), (7, 1)])
def test_in_what_steps_a_side_varies(side: int, by: int) -> None:
    assert step(side) == by


@pytest.mark.parametrize(
    ("side", "others"),
    [
        (640, (480, 800)),
        (128, (96, 160)),
        (64, (32, 96)),
        (32, (64, 96)),
        (800, (576, 1024)),
        (518, (378, 658)),  # 37 patches of 14
        (300, (224, 376)),
        (7, (5, 9)),
    ],
)
def test_two_other_sides_near_three_and_five_quarters(side: int, others: tuple[int, int]) -> None:
    assert other_sides(side) == others


def pictures(layout: str = "NCHW") -> list[InputSpec]:
    first = images_input("images", Preprocessing(size=[64, 128], layout=layout))
    return [first, InputSpec("sizes", "picture_size", "int64", ("batch", 2))]


@pytest.mark.parametrize(
    ("layout", "axes", "sizes"),
    [
        ("NCHW", {0: "n", 2: "h", 3: "w"}, [[32, 160], [96, 96]]),
        ("NCHW", {2: "side", 3: "side"}, [[32, 96], [96, 160]]),
        ("NCHW", {2: "h"}, [[32, 128], [96, 128]]),
        ("NCHW", {3: "w"}, [[64, 160], [64, 96]]),
        ("NHWC", {1: "h", 2: "w"}, [[32, 160], [96, 96]]),
    ],
)
def test_axes_that_vary_get_other_sizes(layout: str, axes: dict[int, str], sizes: list[list[int]]) -> None:
    changed = at_other_sizes(pictures(layout), {"images": axes})
    assert [list(inputs[0].size or ()) for inputs in changed] == sizes
    assert [list(inputs[0].height_width) for inputs in changed] == sizes
    assert all(inputs[1] == pictures()[1] for inputs in changed)


@pytest.mark.parametrize("axes", [{}, {"images": {0: "n"}}, {"sizes": {0: "n", 1: "two"}}])
def test_where_no_side_varies_there_is_nothing_to_try(axes: dict[str, dict[int, str]]) -> None:
    assert at_other_sizes(pictures(), axes) == []


def feed(height: int, width: int, rows: int = 1) -> dict[str, np.ndarray]:
    return {"x": np.zeros((rows, 3, height, width), np.float32), "n": np.zeros((rows, 2), np.int64)}


def test_the_batch_is_no_other_size() -> None:
    assert other_axes(feed(4, 6, rows=3), feed(4, 6)) == []
    assert other_axes(feed(4, 7), feed(5, 6)) == [("x", 2), ("x", 3)]


def test_axes_of_outputs_that_vary() -> None:
    runs = [{"y": np.zeros((2, 3, 4)), "z": np.zeros(2)}, {"y": np.zeros((2, 5, 4)), "z": np.zeros(2)}]
    assert varying_axes(runs) == {"y": [1], "z": []} and varying_axes([]) == {}


def test_a_refusal_names_the_axes_and_the_sizes() -> None:
    error = refusal(feed(8, 9), feed(4, 6), {"x": {2: "h", 3: "w"}}, "it_fails")
    assert error.code == "axis-fixed"
    in_order(str(error), "axis 2", "'x'", "h", "axis 3", "w", [1, 3, 8, 9], [1, 3, 4, 6], "it_fails")
