"""Every way in which profiles can contradict a graph, said at once."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import pytest

from tests.messages import expect
from tests.truehalf.conftest import parsed
from truehalf.engines.profiles import check_profiles, points_of

IMAGES = "g (float[N,3,8,W] images) => (float[N,3,8,W] y) { y = Relu(images) }"
TWO = """g (float[N,3,8,8] images, float[N,2] sizes) => (float[N,3,8,8] y, float[N,2] z)
    { y = Relu(images)  z = Relu(sizes) }"""
RESIZED = """g (float[1,3,H,W] x, int64[2] size) => (float[1,3,A,B] y)
    <int64[2] head = {1, 3}> { whole = Concat <axis = 0> (head, size)  y = Resize (x, , , whole) }"""


def graph(text: str) -> ir.Graph:
    return ir.from_proto(parsed(text)).graph


def profile(low: Any, opt: Any, high: Any) -> dict[str, Any]:
    return {"min": low, "opt": opt, "max": high}


FITTING = profile([1, 3, 8, 8], [2, 3, 8, 16], [4, 3, 8, 32])


def test_profiles_that_fit() -> None:
    assert check_profiles(graph(IMAGES), [{"images": FITTING}]) == []
    large = profile([8, 3, 8, 8], [16, 3, 8, 16], [32, 3, 8, 32])
    assert check_profiles(graph(IMAGES), [{"images": FITTING}, {"images": large}]) == []


@pytest.mark.parametrize(
    ("given", "key", "code", "facts"),
    [
        ({}, "", "needs-value", ["'images'", "[N, 3, 8, W]"]),
        ({"images": FITTING, "image": FITTING}, ".image", "wrong-name", ["images"]),
        ({"images": FITTING | {"max": [4, 3, 8]}}, ".images.max", "wrong-shape", [4, [4, 3, 8]]),
        ({"images": profile([1, 3], [2, 3], [4, 3])}, ".images.opt", "wrong-shape", [4, "[N, 3, 8, W]", [2, 3]]),
        (
            {"images": FITTING | {"opt": [8, 3, 8, 16]}},
            ".images.opt",
            "out-of-range",
            ["axis 0", "0 <= min <= opt <= max", "1, 8, 4"],
        ),
        (
            {"images": FITTING | {"min": [-1, 3, 8, 8]}},
            ".images.opt",
            "out-of-range",
            ["axis 0", "0 <= min <= opt <= max", "-1, 2, 4"],
        ),
        ({"images": FITTING | {"max": [4, 3, 16, 32]}}, ".images.opt", "axis-fixed", ["axis 2", 8, "8, 8, 16"]),
    ],
)
def test_a_fault_is_named(given: dict[str, Any], key: str, code: str, facts: list[object]) -> None:
    (fault,) = check_profiles(graph(IMAGES), [given])
    assert fault.startswith(f"engine.profiles[0]{key}: ")
    expect(fault, code, *facts)


def test_every_fault_is_said_at_once() -> None:
    profiles = [{"images": profile([2, 3, 8, 8], [1, 3, 8, 8], [4, 4, 8, 8]), "other": FITTING}, {}]
    assert [fault.split(":")[0] for fault in check_profiles(graph(IMAGES), profiles)] == [
        "engine.profiles[0].other",
        "engine.profiles[0].images.opt",
        "engine.profiles[1]",
    ]


def test_a_dynamic_input_needs_a_profile_and_a_fixed_one_does_not() -> None:
    (fault,) = check_profiles(graph(IMAGES), [])
    expect(fault, "needs-value", "engine.profiles:", "images", "min, opt", "max")
    fixed = graph("g (float[1,3] x) => (float[1,3] y) { y = Relu(x) }")
    assert check_profiles(fixed, []) == [] == check_profiles(fixed, [{"x": profile([1, 3], [1, 3], [1, 3])}])
    (fault,) = check_profiles(fixed, [{"x": profile([1, 3], [1, 3], [2, 3])}])
    expect(fault, "axis-fixed", "axis 0", 1, "1, 1, 2")


def test_an_axis_without_a_name_is_dynamic_too() -> None:
    unnamed = graph(IMAGES)
    unnamed.inputs[0].shape = ir.Shape([None, 3, 8, -1])
    assert check_profiles(unnamed, [{"images": FITTING}]) == []
    expect(check_profiles(unnamed, [{}])[0], "needs-value", "[?, 3, 8, ?]")


def test_one_name_of_an_axis_is_one_number() -> None:
    images = profile([1, 3, 8, 8], [2, 3, 8, 8], [4, 3, 8, 8])
    assert check_profiles(graph(TWO), [{"images": images, "sizes": profile([1, 2], [2, 2], [4, 2])}]) == []
    (fault,) = check_profiles(graph(TWO), [{"images": images, "sizes": profile([1, 2], [1, 2], [8, 2])}])
    expect(fault, "in-conflict", "engine.profiles[0].sizes.opt:", "axis 0", "'N'", "images", "1, 2, 4", "1, 1, 8")


def test_initializers_among_the_inputs_are_no_inputs() -> None:
    listed = graph("g (float[N,2] x, float[2] w) => (float[N,2] y) <float[2] w = {1, 2}> { y = Mul(x, w) }")
    assert check_profiles(listed, [{"x": profile([1, 2], [1, 2], [2, 2])}]) == []


def test_numbers_of_an_integer_input_that_may_be_a_shape_are_left_to_the_parser() -> None:
    x = profile([1, 3, 8, 8], [1, 3, 8, 8], [1, 3, 16, 16])
    check = lambda size: check_profiles(graph(RESIZED), [{"x": x, "size": size}])  # noqa: E731
    assert check(profile([8, 8], [16, 16], [32, 64])) == [] == check(profile([2], [2], [2]))
    (fault,) = check(profile([8, 8], [4, 16], [32, 64]))
    expect(fault, "out-of-range", "engine.profiles[0].size.opt:", "value 0", "min <= opt <= max", "8, 4, 32")


def test_each_point_is_there_once_in_the_order_of_the_profiles() -> None:
    profiles = [{"x": profile([1, 3], [1, 3], [8, 3])}, {"x": profile([2, 3], [2, 3], [2, 3])}]
    assert [(point["profile"], point["points"], point["shapes"]["x"]) for point in points_of(profiles)] == [
        (0, ["min", "opt"], [1, 3]),
        (0, ["max"], [8, 3]),
        (1, ["min", "opt", "max"], [2, 3]),
    ]
    assert [point["points"] for point in points_of([])] == [["min", "opt", "max"]]
