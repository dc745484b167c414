"""Reshape of what may be empty."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.messages import expect, raises
from tests.truehalf.patterns.repairing import assert_equal, parsed, repaired, run, uniform

KEPT = """net (float[n, 8] x, int64[n] labels) => (float[a, b, c] y)
<int64[1] zero = {0}, int64[1] four = {4}, int64[1] two = {2}, int64[1] minus = {-1}>
{
    found = NonZero (labels)
    index = Squeeze (found, zero)
    rows = Gather (x, index)
    shape = Shape (rows)
    count = Gather (shape, zero)
    computed = Mul (index, index)
    sizes = Concat <axis = 0> (SIZES)
    y = Reshape (rows, sizes)
}"""


def kept(sizes: str) -> onnx.ModelProto:
    return parsed(KEPT.replace("SIZES", sizes))


def feed(*labels: int) -> dict[str, np.ndarray]:
    return {"x": uniform(len(labels), 8), "labels": np.array(labels, np.int64)}


def flags(model: onnx.ModelProto) -> list[int]:
    return [a.i for node in model.graph.node for a in node.attribute if a.name == "allowzero"]


def test_a_computed_size_of_zero_is_none() -> None:
    before = kept("four, two, count")
    after, report = repaired(before, "allowzero")
    assert report.counts == {"allowzero": 1}
    assert flags(after) == [1]
    assert_equal(before, after, [feed(0, 3, 1), feed(1, 1, 1, 1, 0)])
    assert all(run(after, feed(0, 0, 0), optimized)[0].shape == (4, 2, 0) for optimized in (False, True))
    with raises(None, "Reshape_y", error=Exception):  # 0 in third place copies a size that x does not have
        run(before, feed(0, 0, 0))


@pytest.mark.parametrize(
    ("sizes", "fact", "others"),
    [
        ("count, zero, four", 0, ["-1", "'computed'"]),
        ("count, two, minus", "-1", ["'computed'"]),
        ("count, computed, four", "'computed'", ["-1", "0"]),
    ],
)
def test_refused(sizes: str, fact: object, others: list[str]) -> None:
    after, report = repaired(kept(sizes), "allowzero")
    assert flags(after) == []
    reason = report.refused[0]["reason"]
    expect(reason, None, fact)
    assert not [other for other in others if other in reason]


def other(counted: str) -> onnx.ModelProto:
    """A size of something else than what is reshaped."""
    return parsed(
        f"""net (float[n, 4] x, float[q, 3] u, int64[n] labels) => (float[a, b] y)
        <int64[1] zero = {{0}}, int64 axis = {{0}}, int64[1] four = {{4}}>
        {{ found = NonZero (labels)  index = Squeeze (found, zero)  rows = Gather (x, index)
          same = Gather (labels, index)  shape = Shape ({counted})  count = Gather (shape, zero)
          sizes = Concat <axis = 0> (count, four)  y = Reshape (rows, sizes) }}"""
    )


def test_a_size_of_another_tensor_copied_one_of_the_input() -> None:
    before = other("u")
    after, report = repaired(before, "allowzero")
    assert flags(after) == []
    assert report.refused == []
    x = {"x": uniform(3, 4), "labels": np.array([1, 0, 1])}
    assert_equal(before, after, [x | {"u": uniform(count, 3)} for count in (0, 2)])


@pytest.mark.parametrize("counted", ["rows", "same", "found"])
def test_a_size_of_what_the_same_mask_chose(counted: str) -> None:
    _, report = repaired(other(counted), "allowzero")
    assert (report.counts, report.refused) == ({"allowzero": 1}, [])


def test_what_is_never_empty_and_constant_shapes_stay() -> None:
    model = parsed(
        """net (float[n, 8] x) => (float[a, b, c] y)
        <int64[1] zero = {0}, int64[2] rest = {2, 4}>
        { shape = Shape (x)  count = Gather (shape, zero)  sizes = Concat <axis = 0> (count, rest)
          y = Reshape (x, sizes) }"""
    )
    after, report = repaired(model, "allowzero")
    assert (flags(after), report.refused) == ([], [])
