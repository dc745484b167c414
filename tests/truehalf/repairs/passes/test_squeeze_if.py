"""The If that squeeze leaves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from tests.messages import expect, raises
from tests.tracing import trace_config
from tests.truehalf.repairs.repairing import assert_equal, ops, parsed, repaired, run, uniform
from truehalf.exporting.export import export


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
    ("reader", "output", "fails"),
    [
        ("y = Transpose <perm = [1, 0]> (r)", "float[3, n]", "Transpose_y"),
        ("e = Exp (r)  y = Gemm (e, w)", "float[n, 2]", "Gemm_y"),
        (
            "t = Tanh (r)  m = ReduceMean <axes = [-1], keepdims = 0> (t)  y = Transpose <perm = [0]> (m)",
            "float[n]",
            "Transpose_y",
        ),
        (
            "m = ReduceMax <axes = [1]> (r)  e = Exp (m)  y = Transpose <perm = [1, 0]> (e)",
            "float[1, n]",
            "Transpose_y",
        ),
    ],
)
def test_the_reader_says_that_it_was_squeezed(reader: str, output: str, fails: str) -> None:
    before = squeeze("frames", reader, output)
    after, report = repaired(before, "squeeze_if")
    assert ops(after)[0] == "Squeeze"
    assert not {"If", "Shape", "Equal"} & {*ops(after)}
    assert report.counts == {"squeeze_if": 1}
    assert_equal(before, after, [{"x": uniform(n, 1, 3)} for n in (1, 4)])
    for model, node in ((before, fails), (after, "Squeeze")):  # neither takes the other rank, so nothing is lost
        with raises(None, node, error=Exception):
            run(model, {"x": uniform(4, 2, 3)})


def test_the_reader_says_that_it_was_not() -> None:
    before = squeeze("frames", "y = Transpose <perm = [2, 0, 1]> (r)", "float[3, n, frames]", axis=-2)
    after, _ = repaired(before, "squeeze_if")
    assert ops(after) == ["Identity", "Transpose"]
    assert_equal(before, after, [{"x": uniform(2, frames, 3)} for frames in (2, 4)])
    with raises(None, "Transpose_y", error=Exception):
        run(before, {"x": uniform(2, 1, 3)})


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
    (refusal,) = report.refused
    assert (refusal["pass"], refusal["node"]) == ("squeeze_if", "/net/block.0/If_r")
    expect(refusal["reason"], None, "axis 1", "'x'", "x[:, 0]")


@pytest.mark.parametrize("output", ["float[n, 3]", "float[n, frames, 3]"])
def test_a_stated_rank_of_an_output_says_nothing(output: str) -> None:
    before = squeeze("frames", "y = Relu (r)", output)
    after, report = repaired(before, "squeeze_if")
    (refusal,) = report.refused
    assert (refusal["pass"], refusal["node"]) == ("squeeze_if", "/net/block.0/If_r")
    expect(refusal["reason"], None, "axis 1", "'x'", "x[:, 0]")
    assert_equal(before, after, [{"x": uniform(3, frames, 3)} for frames in (1, 2)])  # ONNX Runtime runs both


def test_a_reader_that_may_never_run_says_nothing() -> None:
    before = squeeze(
        "frames",
        """zero = Constant <value = int64[1] {0}> ()  rank = Shape (s)  two = Constant <value = int64[1] {2}> ()
           flat = Equal (rank, two)
           t = If (flat) <then_branch = a () => (u) { u = Transpose <perm = [1, 0]> (r) },
                           else_branch = b () => (v) { v = Relu (r) }>
           y = Neg (t)""",
        "float[n, frames, 3]",
    )
    after, report = repaired(before, "squeeze_if")
    assert report.counts == {"squeeze_if": 0}
    assert_equal(before, after, [{"x": uniform(3, frames, 3)} for frames in (1, 2)])


@pytest.mark.parametrize("axes", ["[1]", "[0, -2]"])
def test_a_reduce_alone_says_nothing(axes: str) -> None:
    before = squeeze("frames", f"y = ReduceMean <axes = {axes}, keepdims = 0> (r)", "float[n]")
    _, report = repaired(before, "squeeze_if")
    assert report.counts == {"squeeze_if": 0}


def test_gemm_takes_a_vector_too() -> None:
    before = parsed(
        """net (float[n, k] x, float[k, 2] w) => (float[m, 2] y)
        <int64[1] axis = {0}, int64[1] one = {1}>
        { s = Shape (x)  size = Gather (s, axis)  c = Equal (size, one)
          r = If (c) <then_branch = yes () => (p) { p = Squeeze (x, axis) },
                      else_branch = no () => (q) { q = Identity (x) }>
          y = Gemm (r, w) }"""
    )
    _, report = repaired(before, "squeeze_if")
    assert report.counts == {"squeeze_if": 0}


def test_axes_as_an_attribute() -> None:
    before = parsed(
        """net (float[n, frames, 3] x) => (float[n, 3] y)
        <int64[1] axis = {1}, int64[1] one = {1}>
        { s = Shape (x)  size = Gather (s, axis)  c = Equal (size, one)
          r = If (c) <then_branch = yes () => (p) { p = Squeeze <axes = [1]> (x) },
                      else_branch = no () => (q) { q = Identity (x) }>
          m = Neg (r)  y = Transpose <perm = [0, 1]> (m) }""",
        opset=12,
    )
    after, _ = repaired(before, "squeeze_if")
    assert ops(after) == ["Squeeze", "Neg", "Transpose"]
    assert_equal(before, after, [{"x": uniform(2, 1, 3)}])


class Stem(torch.nn.Module):
    """Of a detector for clips that is called with one frame."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3)

    def forward(self, clip: torch.Tensor) -> torch.Tensor:
        return self.conv(clip.squeeze(1)).relu()


def test_what_torch_exports_before_a_convolution(tmp_path: Path) -> None:
    axes = {"clip": {0: "batch", 1: "frames"}}
    example = (torch.from_numpy(uniform(2, 1, 3, 8, 8)),)
    export(Stem(), example, tmp_path / "m.onnx", trace_config(axes=axes), input_names=["clip"], output_names=["y"])
    before = onnx.load(tmp_path / "m.onnx")
    assert "If" in ops(before)
    after, report = repaired(before, "squeeze_if")
    assert (report.counts, "If" in ops(after)) == ({"squeeze_if": 1}, False)
    assert_equal(before, after, [{"clip": uniform(batch, 1, 3, 8, 8)} for batch in (1, 3)])


def test_other_ifs_stay() -> None:
    before = parsed(
        """net (bool c, float[1, 3] x) => (float[1, 3] y)
        { y = If (c) <then_branch = yes () => (float[1, 3] p) { p = Neg (x) },
                      else_branch = no () => (float[1, 3] q) { q = Identity (x) }> }"""
    )
    after, report = repaired(before, "squeeze_if")
    assert (ops(after), report.refused) == (["If"], [])
