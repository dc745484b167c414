from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.messages import raises
from tests.truehalf.exporting.torch_ops.exports import EXPORTERS, check_export
from truehalf.exporting.torch_ops import grid_sample

WAYS = [(padding, corners) for padding in ("zeros", "border") for corners in (False, True)]
ROUNDING = 2e-5  # of positions up to 40 pixels in float32, against differences of a few between pixels


def reference(x: torch.Tensor, grid: torch.Tensor, padding: str, corners: bool) -> torch.Tensor:
    return torch.nn.functional.grid_sample(x, grid, "bilinear", padding, corners)


def picture(batch: int, height: int, width: int) -> torch.Tensor:
    return torch.randn(batch, 3, height, width, generator=torch.Generator().manual_seed(batch))


@pytest.mark.parametrize(("padding", "corners"), WAYS)
@pytest.mark.parametrize("size", [(1, 1), (1, 5), (7, 4), (40, 33)])
def test_equals_torch(padding: str, corners: bool, size: tuple[int, int]) -> None:
    x = picture(2, *size)
    grid = 3.0 * torch.rand(2, 9, 6, 2, generator=torch.Generator().manual_seed(0)) - 1.5
    got = grid_sample(x, grid, padding_mode=padding, align_corners=corners)
    torch.testing.assert_close(got, reference(x, grid, padding, corners), rtol=0, atol=ROUNDING)


@pytest.mark.parametrize(("padding", "corners"), WAYS)
def test_equals_torch_on_borders_and_far_outside(padding: str, corners: bool) -> None:
    side = torch.tensor([-1e30, -5.0, -1.25, -1.0, -0.75, 0.0, 0.75, 1.0, 1.25, 5.0, 1e30])
    grid = torch.stack(torch.meshgrid(side, side, indexing="xy"), -1)[None]
    x = picture(1, 4, 8)
    got = grid_sample(x, grid, padding_mode=padding, align_corners=corners)
    torch.testing.assert_close(got, reference(x, grid, padding, corners), rtol=0, atol=ROUNDING)


@pytest.mark.parametrize(("padding", "corners"), WAYS)
def test_infinite_points_are_far_outside(padding: str, corners: bool) -> None:
    grid = torch.tensor([[[[torch.inf, 0.0], [0.0, -torch.inf]]]])
    got = grid_sample(picture(1, 4, 4), grid, padding_mode=padding, align_corners=corners)
    assert got.isfinite().all() and bool((got == 0).all()) == (padding == "zeros")


def test_no_points_and_no_pictures() -> None:
    for grid in (torch.zeros(2, 0, 3, 2), torch.zeros(0, 5, 3, 2)):
        x = picture(grid.shape[0], 4, 4)
        assert grid_sample(x, grid).shape == reference(x, grid, "zeros", False).shape


def test_wide_pictures_in_half_precision_read_the_right_pixels() -> None:
    """Places are counted in integers: float16 counts to 2048, and here are 16384 pixels."""
    x = torch.arange(128 * 128, dtype=torch.float32).remainder(251).reshape(1, 1, 128, 128)
    place = (torch.arange(128) + 0.5) / 64 - 1
    grid = torch.stack(torch.meshgrid(place, place, indexing="xy"), -1)[None].half()
    assert torch.equal(grid.float()[0, 0, :, 0], place), "exact in half"
    torch.testing.assert_close(grid_sample(x.half(), grid).float(), x, rtol=0, atol=0.25)


def test_gradients_are_torchs() -> None:
    x, grid = picture(1, 5, 6).requires_grad_(), (1.8 * torch.rand(1, 4, 4, 2) - 0.9).requires_grad_()
    ours = torch.autograd.grad(grid_sample(x, grid).square().sum(), (x, grid))
    theirs = torch.autograd.grad(reference(x, grid, "zeros", False).square().sum(), (x, grid))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_called_as_torchs() -> None:
    x, grid = picture(1, 4, 6), torch.rand(1, 3, 3, 2)
    for padding, corners in WAYS:
        expected = reference(x, grid, padding, corners)
        torch.testing.assert_close(grid_sample(x, grid, "bilinear", padding, corners), expected, rtol=0, atol=ROUNDING)
    named = grid_sample(input=x, grid=grid, mode="bilinear", padding_mode="border", align_corners=None)
    torch.testing.assert_close(named, reference(x, grid, "border", False), rtol=0, atol=ROUNDING)


def test_refusals() -> None:
    with raises(None, "grid_sample", "mode", "bilinear", "'nearest'", error=ValueError):
        grid_sample(picture(1, 4, 4), torch.zeros(1, 1, 1, 2), "nearest")
    with raises(None, "grid_sample", "padding_mode", "zeros", "border", "'reflection'", error=ValueError):
        grid_sample(picture(1, 4, 4), torch.zeros(1, 1, 1, 2), padding_mode="reflection")
    with raises(None, "grid_sample", [3, 4, 4], [1, 1, 1, 2], error=ValueError):
        grid_sample(picture(1, 4, 4)[0], torch.zeros(1, 1, 1, 2))


@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize(("padding", "corners"), WAYS)
def test_exports(padding: str, corners: bool, exporter: tuple[str, int], tmp_path: Path) -> None:
    def sampled(x: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
        return grid_sample(x, grid, padding_mode=padding, align_corners=corners)

    examples = [(picture(n, 6, 5), 3.0 * torch.rand(n, 4, 7, 2) - 1.5) for n in (2, 3)]
    axes = {"a": {0: "batch"}, "b": {0: "batch"}}
    check_export(sampled, examples, axes, exporter, tmp_path, tolerance=ROUNDING)


def test_exports_with_height_and_width_that_vary(tmp_path: Path) -> None:
    examples = [(picture(n, h, w), 3.0 * torch.rand(n, p, 7, 2) - 1.5) for n, h, w, p in ((2, 6, 5, 4), (3, 9, 12, 8))]
    axes = {"a": {0: "batch", 2: "height", 3: "width"}, "b": {0: "batch", 1: "points"}}
    check_export(grid_sample, examples, axes, EXPORTERS[0], tmp_path, tolerance=ROUNDING)
