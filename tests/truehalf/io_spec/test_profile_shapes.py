"""Profiles with the sides that the I/O spec knows."""

from __future__ import annotations

from typing import Any

import pytest

from tests.messages import raises
from truehalf.config.engine import ProfileShapes
from truehalf.io_spec.profile_shapes import completed
from truehalf.io_spec.spec import InputSpec, IoSpec

INPUTS = [
    InputSpec("images", shape=("batch", 3, 64, "width")),
    InputSpec("sizes", shape=("batch", 2)),
    InputSpec("anchors", shape=(100, 4)),
    InputSpec("words", shape=("batch", "length")),
]


def shapes(low: list[int | None], opt: list[int | None], high: list[int | None]) -> ProfileShapes:
    return ProfileShapes(min=low, opt=opt, max=high)


def test_null_is_the_side_that_the_model_fixes() -> None:
    (profile,) = completed([{"images": shapes([1, 3, None, 32], [1, 3, None, 64], [8, 3, None, 96])}], INPUTS)
    assert profile["images"] == {"min": [1, 3, 64, 32], "opt": [1, 3, 64, 64], "max": [8, 3, 64, 96]}


def test_an_input_varies_with_the_sides_of_others() -> None:
    (profile,) = completed([{"images": shapes([1, 3, 64, 32], [2, 3, 64, 64], [8, 3, 64, 96])}], INPUTS)
    assert profile["sizes"] == {"min": [1, 2], "opt": [2, 2], "max": [8, 2]}
    assert "anchors" not in profile and "words" not in profile  # fixed; and a side that nothing says


@pytest.mark.parametrize(
    ("name", "sides", "code", "facts"),
    [
        ("images", [1, 3, 64, None], "needs-value", ["engine.profiles[0].images:", "axis 3", "width", "null"]),
        ("image", [1, 3, 64, 32], "wrong-name", ["engine.profiles[0]:", "image", "images, sizes, anchors, words"]),
    ],
)
def test_what_cannot_be_completed(name: str, sides: list[int | None], code: str, facts: list[object]) -> None:
    with raises(code, *facts):
        completed([{name: shapes(sides, sides, sides)}], INPUTS)


PICTURE = {"kind": "images", "size": [48, 64]}


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([{"name": "x", "shape": ["n", 3, 8, 8]}], {"x": ([1, 3, 8, 8], [8, 3, 8, 8])}),
        ([{"name": "x", "shape": [2, 3, 8, 8]}], {"x": ([2, 3, 8, 8], [2, 3, 8, 8])}),
        ([{"name": "p", "shape": ["b", 3, "h", "w"]} | PICTURE], {"p": ([1, 3, 48, 64], [8, 3, 48, 64])}),
        (
            [{"name": "p", "shape": ["b", "h", "w", 3], "layout": "NHWC"} | PICTURE],
            {"p": ([1, 48, 64, 3], [8, 48, 64, 3])},
        ),
        (
            [
                {"name": "ids", "shape": ["n", "t"], "traced": [2, 7]},
                {"name": "mask", "shape": ["n", "t"], "traced": [2, 7]},
                {"name": "table", "shape": [5, 4]},
            ],
            {"ids": ([1, 7], [8, 7]), "mask": ([1, 7], [8, 7]), "table": ([5, 4], [5, 4])},
        ),
        ([{"name": "x", "shape": [1, "t"], "traced": [1, 9]}], {"x": ([1, 9], [1, 9])}),
    ],
)
def test_without_profiles_there_is_one_for_the_inputs(entries: list[dict[str, Any]], expected: dict[str, Any]) -> None:
    (profile,) = completed(None, IoSpec.from_json({"inputs": entries}).inputs)
    assert profile == {name: {"min": low, "opt": low, "max": high} for name, (low, high) in expected.items()}


@pytest.mark.parametrize("first", ["batch", "n", "k", "batch size", "unk__0"])
def test_the_samples_of_every_input_vary_together(first: str) -> None:
    """By their place: files call the first axis of each input as they like."""
    inputs = [InputSpec("x", shape=("batch", 3)), InputSpec("z", shape=(first, "t"), traced=(2, 5))]
    (profile,) = completed(None, inputs)
    assert profile["x"] == {"min": [1, 3], "opt": [1, 3], "max": [8, 3]}
    assert profile["z"] == {"min": [1, 5], "opt": [1, 5], "max": [8, 5]}
