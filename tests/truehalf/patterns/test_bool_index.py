"""Reading and writing under a boolean mask."""

from __future__ import annotations

import numpy as np
import pytest

from tests.messages import expect
from tests.truehalf.patterns.repairing import assert_equal, ops, parsed, repaired, uniform
from truehalf.codes import codes_in


def feeds(**more: tuple[int, ...]) -> list[dict[str, np.ndarray]]:
    masks = [np.zeros((4, 3), bool), np.ones((2, 3), bool), uniform(6, 3) > 0]
    found = []
    for mask in masks:
        feed = {name: uniform(len(mask), *shape) for name, shape in more.items()}
        feed["x"][0, 0] = np.inf  # nothing is multiplied
        found.append(feed | {"mask": mask})
    return found


def test_one_value_is_written() -> None:
    before = parsed(
        """net (float[n, 3, 5] x, bool[n, 3] mask) => (float[n, 3, 5] y)
        <float[1] v = {7.5}, int64[1] zero = {0}, int64[1] one = {1}, int64[1] five = {5}, int64[1] minus = {-1}>
        { nz = NonZero (mask)  at = Transpose <perm = [1, 0]> (nz)  s = Shape (at)  n = Gather (s, zero)
          sizes = Concat <axis = 0> (n, five)  values = Expand (v, sizes)  y = ScatterND (x, at, values) }"""
    )
    after, report = repaired(before, "bool_index")
    assert ops(after)[-1] == "Where"
    assert not {"NonZero", "ScatterND"} & {*ops(after)}
    assert report.counts == {"bool_index": 1}
    assert_equal(before, after, feeds(x=(3, 5)))


def test_another_tensor_is_written_as_torch_exports_it() -> None:
    before = parsed(
        """net (float[n, 3, 5] x, float[n, 3, 5] other, bool[n, 3] mask) => (float[n, 3, 5] y)
        <int64[1] zero = {0}, int64 none = {0}, int64[1] last = {-1}>
        { nz = NonZero (mask)  at = Transpose <perm = [1, 0]> (nz)  rows = GatherND (other, at)
          um = Unsqueeze (mask, last)  sx = Shape (x)  em = Expand (um, sx)
          nz2 = NonZero (em)  at2 = Transpose <perm = [1, 0]> (nz2)  flat = Reshape (rows, last)
          s2 = Shape (at2)  n = Gather (s2, none)  end = Unsqueeze (n, zero)  values = Slice (flat, zero, end, zero)
          y = ScatterND (x, at2, values) }"""
    )
    after, report = repaired(before, "bool_index")
    assert ops(after) == ["Unsqueeze", "Where"]
    assert report.counts == {"bool_index": 1}
    assert_equal(before, after, feeds(x=(3, 5), other=(3, 5)))


@pytest.mark.parametrize(
    ("body", "reasons"),
    [
        ("rows = GatherND (x, at)  y = Relu (rows)", [("GatherND_rows", "topk")]),
        (
            "rows = GatherND (x, at)  turned = Neg (rows)  y = ScatterND (x, at, turned)",
            [("ScatterND_y", "x * (1 - m) + v * m"), ("GatherND_rows", "topk")],
        ),
    ],
)
def test_refused(body: str, reasons: list[tuple[str, str]]) -> None:
    before = parsed(
        f"""net (float[n, 3, 5] x, bool[n, 3] mask) => (float y)
        {{ nz = NonZero (mask)  at = Transpose <perm = [1, 0]> (nz)  {body} }}"""
    )
    before.graph.output[0].type.tensor_type.ClearField("shape")
    after, report = repaired(before, "bool_index")
    assert "NonZero" in ops(after)
    assert report.counts == {"bool_index": 0}
    for entry, (node, fact) in zip(report.refused, reasons, strict=True):
        assert (entry["node"], codes_in(entry["reason"])) == (f"/net/block.0/{node}", [])
        expect(entry["reason"], None, fact)


def test_sizes_behind_the_mask_must_be_equal_and_static() -> None:
    before = parsed(
        """net (float[n, 3, c] x, float[n, 3, d] other, bool[n, 3] mask) => (float[n, 3, c] y)
        { nz = NonZero (mask)  at = Transpose <perm = [1, 0]> (nz)  rows = GatherND (other, at)
          y = ScatterND (x, at, rows) }"""
    )
    _, report = repaired(before, "bool_index")
    assert report.counts == {"bool_index": 0}


WRITE = """{ nz = NonZero (mask)  at = Transpose <perm = [1, 0]> (nz)  s = Shape (at)  n = Gather (s, zero)
  values = Expand (v, n)  y = ScatterND (x, at, values) }"""
COPY = """{ nz = NonZero (mask)  at = Transpose <perm = [1, 0]> (nz)  rows = GatherND (other, at)
  y = ScatterND (x, at, rows) }"""


@pytest.mark.parametrize("sizes", [("3", "1"), ("n", "1"), ("n", "m"), ("3", "m"), (None, None)])
def test_a_mask_of_fewer_rows_is_refused(sizes: tuple[str | None, str | None]) -> None:
    of_x, of_mask = sizes
    before = parsed(
        f"""net (float[{of_x or "n"}] x, bool[{of_mask or "m"}] mask) => (float[k] y)
        <int64[1] zero = {{0}}, float[1] v = {{9.0}}> {WRITE}"""
    )
    if of_x is None:  # sizes that have no names
        for value in before.graph.input:
            value.type.tensor_type.shape.dim[0].ClearField("dim_param")
    after, report = repaired(before, "bool_index")
    assert report.counts == {"bool_index": 0}
    assert [codes_in(refusal["reason"]) for refusal in report.refused] == [["sizes-unknown"]]
    feed = {"x": np.array([1, 2, 3], np.float32), "mask": np.array([True])}
    assert_equal(before, after, [feed])


def test_rows_of_a_longer_tensor_are_refused() -> None:
    before = parsed(
        f"net (float[n] x, float[5] other, bool[n] mask) => (float[n] y) {COPY}",
    )
    after, report = repaired(before, "bool_index")
    assert report.counts == {"bool_index": 0}
    assert_equal(before, after, [{"x": uniform(3), "other": uniform(5), "mask": uniform(3) > 0}])
