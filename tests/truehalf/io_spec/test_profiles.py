"""Profiles with the sides that the I/O spec knows, and every way in which they contradict it, said at once."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import pytest

from tests.messages import expect, raises
from tests.truehalf.conftest import parsed
from truehalf.config.engine import ProfileShapes
from truehalf.io_spec.inputs import inputs_of
from truehalf.io_spec.profiles import completed, dynamic_inputs, profile_of
from truehalf.io_spec.spec import InputSpec, IoSpec

INPUTS = [
    InputSpec("images", shape=("batch", 3, 64, "width")),
    InputSpec("sizes", shape=("batch", 2)),
    InputSpec("anchors", shape=(100, 4)),
]
WORDS = InputSpec("words", shape=("batch", "length"))


def shapes(low: list[int], opt: list[int], high: list[int]) -> ProfileShapes:
    return ProfileShapes(min=tuple(low), opt=tuple(opt), max=tuple(high))


FITTING = shapes([1, 3, 64, 32], [2, 3, 64, 64], [8, 3, 64, 96])


def test_an_input_varies_with_the_sides_of_others() -> None:
    (profile,) = completed([{"images": FITTING}], INPUTS)
    assert profile["sizes"] == {"min": [1, 2], "opt": [2, 2], "max": [8, 2]}
    assert "anchors" not in profile, "it is fixed"


WRONG: list[tuple[dict[str, ProfileShapes], str, str, list[object]]] = [
    ({"images": FITTING, "image": FITTING}, ".image", "wrong-name", ["images, sizes, anchors"]),
    ({"images": FITTING, "sizes": shapes([1], [2], [4])}, ".sizes.opt", "wrong-shape", [2, "[batch, 2]", [2]]),
    (
        {"images": shapes([1, 3, 64, 32], [1, 3, 64, 16], [8, 3, 64, 96])},
        ".images.opt",
        "out-of-range",
        ["axis 3", "0 <= min <= opt <= max", "32, 16, 96"],
    ),
    ({"images": shapes(*[[1, 3, 8, 8]] * 3)}, ".images.opt", "axis-fixed", ["axis 2", 64, "8, 8, 8"]),
    (
        {"images": FITTING, "sizes": shapes([1, 2], [1, 2], [8, 2])},
        ".sizes.opt",
        "in-conflict",
        ["axis 0", "'batch'", "1, 2, 8", "1, 1, 8"],
    ),
    ({"sizes": shapes([1, 2], [1, 2], [8, 2])}, ".images", "needs-value", ["[batch, 3, 64, width]"]),
]


@pytest.mark.parametrize(("given", "key", "code", "facts"), WRONG)
def test_a_fault_is_named(given: dict[str, ProfileShapes], key: str, code: str, facts: list[object]) -> None:
    with raises("wrong-plan") as caught:
        completed([{"images": FITTING}, given], INPUTS)
    (fault,) = str(caught.value).splitlines()[1:]
    assert fault.startswith(f"  - engine.profiles[1]{key}: ")
    expect(fault, code, *facts)


def test_all_faults_are_said_at_once() -> None:
    with raises("wrong-plan") as caught:
        completed([given for given, *_ in WRONG], [*INPUTS, WORDS])
    assert len(str(caught.value).splitlines()) == 1 + len(WRONG) + len(WRONG), "words are missing in each"


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


def test_inputs_of_a_file() -> None:
    """Initializers are none, a side of -1 varies, and an integer of a fixed number of values may be a shape."""
    text = """g (float[N,2] x, float[2] w, int64[2] size) => (float[N,2] y) <float[2] w = {1, 2}>
        { s = Cast<to = 1>(size) a = Mul(x, w) y = Mul(a, s) }"""
    model = ir.from_proto(parsed(text))
    model.graph.inputs[0].shape = ir.Shape([None, -1])
    assert [entry.shape for entry in inputs_of(model)] == [("?", "?"), (2,)]
    assert dynamic_inputs(model) == ["x", "size"]
    found = profile_of(model, {"opt": {"x": [1, 4]}, "max": {"x": [3, 4], "size": [9, 9]}})
    assert found["x"] == {"min": [1, 4], "opt": [1, 4], "max": [3, 4]} and found["size"]["opt"] == [9, 9]
    with raises("wrong-plan", "shape.x", "--opt-shape"):
        profile_of(model, {})
