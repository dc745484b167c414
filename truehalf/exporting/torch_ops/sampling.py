"""grid_sample as gathers: out = sum over the four pixels around a point of weight * pixel

TensorRT's GridSample gives wrong results on detectors (NVIDIA/TensorRT#4813).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

PADDINGS = ("zeros", "border")


def grid_sample(
    input: torch.Tensor,
    grid: torch.Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> torch.Tensor:
    """torch.nn.functional.grid_sample(input, grid, mode, padding_mode, align_corners) of images, bilinear.

    Args:
        input: float [N, C, H, W].
        grid: float [N, Ho, Wo, 2]: x and y of each point, -1 to 1 across the image; any number, NaN excepted. An
            infinite one is far outside (torch gives NaN there).
        mode: "bilinear".
        padding_mode: "zeros" (outside is 0) or "border" (outside is the nearest pixel).
        align_corners: whether -1 and 1 are the centres of the outermost pixels, or the image's edges (False, None).

    Returns:
        float [N, C, Ho, Wo]; within a few rounding errors of torch's.

    Raises:
        ValueError: when a shape or a mode is none of these.
    """
    import torch

    if mode != "bilinear":
        raise ValueError(f"grid_sample: expected mode bilinear, got {mode!r}; F.grid_sample has the others")
    if padding_mode not in PADDINGS:
        raise ValueError(f"grid_sample: expected padding_mode {' or '.join(PADDINGS)}, got {padding_mode!r}")
    if input.ndim != 4 or grid.ndim != 4:
        raise ValueError(f"grid_sample: expected four axes each, got {list(input.shape)} and {list(grid.shape)}")
    batch, channels, height, width = input.shape
    rows, columns = grid.shape[1], grid.shape[2]
    points = rows * columns  # P
    column = _pixel(grid.select(3, 0).reshape(batch, points), width, padding_mode, bool(align_corners))  # [N, P]
    row = _pixel(grid.select(3, 1).reshape(batch, points), height, padding_mode, bool(align_corners))
    left, top = column.floor(), row.floor()
    right_share, bottom_share = column - left, row - top
    image = torch.arange(batch, device=input.device).reshape(-1, 1) * (height * width)
    places, weights = [], []
    for y, y_share in ((top, 1 - bottom_share), (top + 1, bottom_share)):
        for a, a_share in ((left, 1 - right_share), (left + 1, right_share)):
            y_inside, a_inside = _inside(y, height), _inside(a, width)
            weights.append(y_share * a_share * y_inside * a_inside)
            # in integers: FP16 counts to 2048; what is outside reads row or column 0, with no weight
            places.append(image + (y * y_inside).long() * width + (a * a_inside).long())
    place, weight = torch.stack(places, 1), torch.stack(weights, 1)  # [N, 4, P]
    pixels = input.permute(0, 2, 3, 1).reshape(batch * height * width, channels)
    around = pixels.index_select(0, place.flatten()).reshape(batch, 4, points, channels)
    mixed = (around * weight.to(input.dtype).reshape(batch, 4, points, 1)).sum(1)  # [N, P, C]
    return mixed.transpose(1, 2).reshape(batch, channels, rows, columns)


def _pixel(position: torch.Tensor, size: int, padding_mode: str, align_corners: bool) -> torch.Tensor:
    """-1..1 in pixels, 0 the first one's centre; one pixel outside is as good as far outside."""
    pixel = (position + 1) * ((size - 1) / 2) if align_corners else (position + 1) * (size / 2) - 0.5
    return pixel.clamp(0, size - 1) if padding_mode == "border" else pixel.clamp(-1, size)


def _inside(place: torch.Tensor, size: int) -> torch.Tensor:
    """1 or 0. Compared with both ends and not clamped again: torch's exporter, where it optimises, writes an invalid
    file for a clamp after the clamp in `_pixel`.
    """
    return (place >= 0).to(place.dtype) * (place <= size - 1).to(place.dtype)
