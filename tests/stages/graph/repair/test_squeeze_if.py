"""The If that squeeze leaves."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.stages.graph.repair.repairing import assert_equal, ops, parsed, repaired, run, uniform


def squeeze(size: str, reader: str, output: str, axis: int = 1) -> onnx.ModelProto:
    return parsed(
        f"""net (float[n, {size}, 3] x) => ({output} y)
        <int64[1] axis = {{{axis}}}, int64[1] one = {{1}}, float[3, 2] w = {{1.0, 2.0, 3.0, 4.0, 5.0, 6.0}}>
        {{ s = Shape (x)  size = Gather (s, axis)  c = Equal (size, one)
          r = If (c) <then_branch = yes () => (p) {{ p = Squeeze (x, axis) }},
                      else_branch = no () => (q) {{ q = Identity (x) }}>
          {reader} }}"""
    )


@pytest.mark.parametrize(
    ("reader", "output"),
    [
        ("y = Relu (r)", "float[n, 3]"),
        ("y = Transpose <perm = [1, 0]> (r)", "float[3, n]"),
        ("e = Exp (r)  y = Gemm (e, w)", "float[n, 2]"),
        ("t = Tanh (r)  y = ReduceMean <axes = [1], keepdims = 0> (t)", "float[n]"),
    ],
)
def test_the_reader_says_that_it_was_squeezed(reader: str, output: str) -> None:
    before = squeeze("frames", reader, output)
    after, report = repaired(before, "squeeze_if")
    assert ops(after)[0] == "Squeeze"
    assert not {"If", "Shape", "Equal"} & {*ops(after)}
    assert report.counts == {"squeeze_if": 1}
    assert_equal(before, after, [{"x": uniform(n, 1, 3)} for n in (1, 4)])


def test_the_reader_says_that_it_was_not() -> None:
    before = squeeze("frames", "y = Transpose <perm = [2, 0, 1]> (r)", "float[3, n, frames]", axis=-2)
    after, _ = repaired(before, "squeeze_if")
    assert ops(after) == ["Identity", "Transpose"]
    assert_equal(before, after, [{"x": uniform(2, frames, 3)} for frames in (2, 4)])


def test_a_known_size_says_it() -> None:
    before = squeeze("1", "y = Mul (r, r)", "float[n, 3]")
    after, _ = repaired(before, "squeeze_if")
    assert ops(after) == ["Squeeze", "Mul"]
    assert_equal(before, after, [{"x": uniform(2, 1, 3)}])


def test_a_known_size_says_that_it_was_not() -> None:
    after, _ = repaired(squeeze("2", "y = Mul (r, r)", "float[n, 2, 3]"), "squeeze_if")
    assert ops(after) == ["Identity", "Mul"]  # ONNX Runtime does not load the other: it squeezes 2 in one branch
    x = uniform(2, 2, 3)
    np.testing.assert_array_equal(run(after, {"x": x})[0], x * x)


def test_refused_where_nothing_says_it() -> None:
    before = squeeze("frames", "p = Mul (r, r)  y = Shape (p)", "int64[k]")
    after, report = repaired(before, "squeeze_if")
    assert "If" in ops(after)
    assert "nothing says whether axis 1 of 'x' is 1" in report.refused[0]["reason"]


def test_axes_as_an_attribute() -> None:
    before = parsed(
        """net (float[n, frames, 3] x) => (float[n, 3] y)
        <int64[1] axis = {1}, int64[1] one = {1}>
        { s = Shape (x)  size = Gather (s, axis)  c = Equal (size, one)
          r = If (c) <then_branch = yes () => (p) { p = Squeeze <axes = [1]> (x) },
                      else_branch = no () => (q) { q = Identity (x) }>
          y = Neg (r) }""",
        opset=12,
    )
    after, _ = repaired(before, "squeeze_if")
    assert ops(after) == ["Squeeze", "Neg"]
    assert_equal(before, after, [{"x": uniform(2, 1, 3)}])


def test_other_ifs_stay() -> None:
    before = parsed(
        """net (bool c, float[1, 3] x) => (float[1, 3] y)
        { y = If (c) <then_branch = yes () => (float[1, 3] p) { p = Neg (x) },
                      else_branch = no () => (float[1, 3] q) { q = Identity (x) }> }"""
    )
    after, report = repaired(before, "squeeze_if")
    assert (ops(after), report.refused) == (["If"], [])
