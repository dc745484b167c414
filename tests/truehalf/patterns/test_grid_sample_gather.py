"""GridSample as gathers: ONNX Runtime's own numbers, inside the picture, on its edge and far outside."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from tests.messages import expect
from tests.truehalf.patterns.repairing import assert_equal, ops, parsed, repaired, run, uniform

# float32 sums of four products, in another order than ONNX Runtime adds them
ROUNDING = 5e-7
# Pixel centres, edges, half a pixel and more outside, far outside. From 2^24 on ONNX Runtime's border is 0: it takes
# weights from a position that has no fraction left; onnx's reference does not.
EDGES = [-1e5, -3.0, -1.25, -1.125, -1.0, -0.875, -0.75, -0.0, 0.0, 1e-30, 0.5, 0.875, 1.0, 1.125, 1.25, 3.0, 1e5]


def sample(
    size: str, *, aligned: int = 0, padding: str = "zeros", mode: str = "bilinear", opset: int = 17, of: str = "float"
) -> onnx.ModelProto:
    attributes = f'align_corners = {aligned}, mode = "{mode}", padding_mode = "{padding}"'
    text = (
        f"net ({of}[n, c, {size}] x, {of}[n, p, q, 2] grid) => ({of}[n, c, p, q] y)\n"
        f"{{ y = GridSample <{attributes}> (x, grid) }}"
    )
    return parsed(text, opset)


def edge_grid(batch: int = 2, edges: list[float] = EDGES) -> np.ndarray:
    grid = np.array(list(itertools.product(edges, edges)), np.float32).reshape(1, len(edges), len(edges), 2)
    return np.repeat(grid, batch, axis=0)


def feeds(height: int, width: int) -> list[dict[str, np.ndarray]]:
    grids = [uniform(2, 5, 3, 2, low=-1.4, high=1.4), uniform(2, 4, 7, 2), edge_grid()]
    return [{"x": uniform(2, 3, height, width), "grid": grid} for grid in grids]


@pytest.mark.parametrize("padding", ["zeros", "border"])
@pytest.mark.parametrize("aligned", [0, 1])
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("size", [(4, 6), (7, 2), (1, 5), (3, 1), (1, 1)])
def test_equal_everywhere(padding: str, aligned: int, known: bool, size: tuple[int, int]) -> None:
    before = sample(f"{size[0]}, {size[1]}" if known else "h, w", aligned=aligned, padding=padding)
    after, report = repaired(before, "grid_sample_gather")
    assert "GridSample" not in ops(after)
    assert ("Shape" in ops(after), "Pad" in ops(after)) == (not known, not known or min(size) < 2)
    assert report.counts == {"grid_sample_gather": 1}
    assert report.refused == []
    assert_equal(before, after, feeds(*size), rtol=ROUNDING)


def test_opset_20_calls_it_linear() -> None:
    before = sample("4, 6", mode="linear", opset=20)
    after, report = repaired(before, "grid_sample_gather")
    assert report.counts == {"grid_sample_gather": 1}
    assert_equal(before, after, feeds(4, 6), rtol=ROUNDING)


@pytest.mark.parametrize("padding", ["zeros", "border"])
def test_reference_evaluator_agrees(padding: str) -> None:
    before = sample("3, 4", mode="linear", padding=padding, opset=20)
    after, _ = repaired(before, "grid_sample_gather")
    feed = {"x": uniform(1, 2, 3, 4), "grid": edge_grid(1, [-1e30, -1e9, *EDGES[1:-1], 1e9, 1e30])}
    expected = ReferenceEvaluator(before).run(None, feed)[0]
    for optimized in (False, True):
        np.testing.assert_allclose(run(after, feed, optimized)[0], expected, rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("optimized", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border"])
def test_nan_gives_nan_and_an_infinity_lies_outside(padding: str, optimized: bool) -> None:
    after, _ = repaired(sample("4, 6", padding=padding), "grid_sample_gather")
    x = uniform(1, 3, 4, 6)
    grid = np.array([[np.nan, 0], [0, np.nan], [np.inf, 0], [-np.inf, 0], [1e38, 0]], np.float32).reshape(1, 5, 1, 2)
    got = run(after, {"x": x, "grid": grid}, optimized)[0][0, :, :, 0]
    assert np.isnan(got[:, :2]).all()
    middle = (x[0, :, 1] + x[0, :, 2]) / 2  # y = 0 lies between rows 1 and 2
    expected = np.zeros((3, 3)) if padding == "zeros" else np.stack([middle[:, 5], middle[:, 0], middle[:, 5]], axis=1)
    np.testing.assert_allclose(got[:, 2:], expected, rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("optimized", [False, True])
def test_half_inputs_keep_their_type_and_positions_are_float32(optimized: bool) -> None:
    before = sample("40, 48", of="float16")
    after, _ = repaired(before, "grid_sample_gather")
    x, grid = uniform(1, 3, 40, 48).astype(np.float16), uniform(1, 9, 9, 2).astype(np.float16)
    got = run(after, {"x": x, "grid": grid}, optimized)[0]
    assert got.dtype == np.float16
    exact = run(sample("40, 48"), {"x": x.astype(np.float32), "grid": grid.astype(np.float32)})[0]
    np.testing.assert_allclose(got, exact, rtol=0, atol=2e-3)  # two roundings of float16, 2^-10, of values up to 1


def test_names_scopes_and_one_table_for_one_picture() -> None:
    before = parsed(
        """net (float[n, 3, 4, 6] x, float[n, p, q, 2] a, float[n, p, q, 2] b)
          => (float[n, 3, p, q] y, float[n, 3, p, q] z)
        { y = GridSample (x, a)  z = GridSample (x, b) }"""
    )
    after, report = repaired(before, "grid_sample_gather")
    assert report.counts == {"grid_sample_gather": 2}
    assert ops(after).count("Reshape") == 1
    assert all(node.name.startswith("/net/block.0/GridSample_") for node in after.graph.node)
    feed = {"x": uniform(2, 3, 4, 6), "a": uniform(2, 5, 3, 2), "b": uniform(2, 5, 3, 2)}
    assert_equal(before, after, [feed], rtol=ROUNDING)


def test_inside_a_body() -> None:
    before = parsed(
        """net (bool c, float[1, 3, 4, 6] x, float[1, 2, 5, 2] grid) => (float[1, 3, 2, 5] y)
        { y = If (c) <
            then_branch = yes () => (float[1, 3, 2, 5] sampled) { sampled = GridSample (x, grid) },
            else_branch = no () => (float[1, 3, 2, 5] other) { twice = Add (grid, grid)  other = GridSample (x, twice) }
        > }"""
    )
    after, report = repaired(before, "grid_sample_gather")
    assert report.counts == {"grid_sample_gather": 2}
    feed = {"x": uniform(1, 3, 4, 6), "grid": uniform(1, 2, 5, 2)}
    assert_equal(before, after, [feed | {"c": np.array(value)} for value in (True, False)], rtol=ROUNDING)


@pytest.mark.parametrize("padding", ["zeros", "border"])
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(
    ("batch", "channels", "points"), [(1, 3, (0, 2)), (1, 3, (2, 0)), (0, 3, (1, 2)), (2, 0, (1, 2)), (0, 0, (0, 0))]
)
def test_empty_grids_batches_and_channels(
    batch: int, channels: int, points: tuple[int, int], known: bool, padding: str
) -> None:
    before = sample("3, 4" if known else "h, w", padding=padding)
    after, report = repaired(before, "grid_sample_gather")
    assert report.counts == {"grid_sample_gather": 1}
    feed = {"x": uniform(batch, channels, 3, 4), "grid": uniform(batch, *points, 2)}
    for optimized in (False, True):
        assert run(after, feed, optimized)[0].shape == (batch, channels, *points)
    if channels:  # ONNX Runtime's own GridSample needs some
        assert_equal(before, after, [feed])


@pytest.mark.parametrize(
    ("model", "facts"),
    [
        (sample("4, 6", mode="nearest"), ["nearest", "mode='bilinear'"]),
        (sample("4, 6", mode="bicubic"), ["bicubic", "mode='bilinear'"]),
        (sample("4, 6", padding="reflection"), ["padding_mode", "reflection", "zeros", "border"]),
        (sample("4, 6", of="double"), ["'x'", "DOUBLE", "FLOAT", "FLOAT16"]),
        (parsed("net (float[n, c, 4, 4, 4] x, float[n, 1, 2, 3, 3] g) => (float[n, c, 1, 2, 3] y) "
                '{ y = GridSample <mode = "linear"> (x, g) }', 20), [5, 4]),
    ],
)  # fmt: skip
def test_refused(model: onnx.ModelProto, facts: list[object]) -> None:
    after, report = repaired(model, "grid_sample_gather")
    assert ops(after) == ["GridSample"]
    assert report.counts == {"grid_sample_gather": 0}
    assert [(entry["pass"], entry["node"]) for entry in report.refused] == [
        ("grid_sample_gather", "/net/block.0/GridSample_y")
    ]
    expect(report.refused[0]["reason"], None, *facts)
