"""GridSample: TensorRT's results are known to be wrong on detectors."""

from __future__ import annotations

import torch

INPUT_NAMES = ("level", "points")
DYNAMIC_AXES: dict[str, dict[int, str]] = {"level": {0: "batch"}, "points": {0: "batch"}}
GRAPH_RULES = ("grid-sample",)
REPAIRS = ("grid_sample_gather",)


class Bad(torch.nn.Module):
    """Deformable attention's reading of a level: bilinear, zeros outside."""

    def forward(self, level: torch.Tensor, points: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.grid_sample(
            level, 2.0 * points - 1.0, mode="bilinear", padding_mode="zeros", align_corners=False
        )


class Good(torch.nn.Module):
    """Four gathers, weighted by the distances to the pixels' centres; those outside weigh nothing."""

    def forward(self, level: torch.Tensor, points: torch.Tensor) -> torch.Tensor:
        (batch, channels, height, width), size = level.shape, points.shape[1:3]
        x, y = points[..., 0] * width - 0.5, points[..., 1] * height - 0.5
        left, top = x.floor(), y.floor()
        pixels, result = level.flatten(2), torch.zeros(())
        for row, row_weight in ((top, top + 1.0 - y), (top + 1.0, y - top)):
            for column, column_weight in ((left, left + 1.0 - x), (left + 1.0, x - left)):
                near_row, near_column = row.clamp(0, height - 1), column.clamp(0, width - 1)
                inside = (row == near_row).to(x.dtype) * (column == near_column).to(x.dtype)
                index = (near_row * width + near_column).long().reshape(batch, 1, -1).expand(-1, channels, -1)
                weight = row_weight * column_weight * inside
                result = result + pixels.gather(2, index) * weight.reshape(batch, 1, -1)
        return result.reshape(batch, channels, *size)


def examples() -> list[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(0)

    def one(batch: int) -> tuple[torch.Tensor, ...]:
        points = 1.4 * torch.rand(batch, 9, 4, 2, generator=generator) - 0.2
        return torch.randn(batch, 6, 5, 7, generator=generator), points

    return [one(2), one(3)]
