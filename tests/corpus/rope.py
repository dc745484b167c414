"""Rotary positions computed in forward: Tile, Sin and Cos of what never changes."""

from __future__ import annotations

import torch

INPUT_NAMES = ("patches",)
DYNAMIC_AXES: dict[str, dict[int, str]] = {"patches": {0: "batch"}}
GRAPH_RULES = ("rope-tile",)
REPAIRS = ("fold_constants",)

SIDE, WIDTH = 4, 8
PERIODS = (1.0, 10.0)


def angles(side: int) -> torch.Tensor:
    """float32 [side * side, WIDTH / 2]: row and column of each patch over each period."""
    centers = (torch.arange(side, dtype=torch.float32) + 0.5) / side * 2.0 - 1.0
    grid = torch.stack(torch.meshgrid(centers, centers, indexing="ij"), -1).flatten(0, 1)
    return (2.0 * torch.pi * grid[:, :, None] / torch.tensor(PERIODS)).flatten(1, 2)


def rotated(x: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat([-second, first], -1)


class Bad(torch.nn.Module):
    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        height, width = patches.shape[2:]
        rows = (torch.arange(0.5, height, dtype=torch.float32) / height * 2.0 - 1.0)[:, None].expand(height, width)
        columns = (torch.arange(0.5, width, dtype=torch.float32) / width * 2.0 - 1.0)[None].expand(height, width)
        grid = torch.stack([rows, columns], -1).flatten(0, 1)
        angle = (2.0 * torch.pi * grid[:, :, None] / torch.tensor(PERIODS)).flatten(1, 2).tile(2)
        x = patches.flatten(2).transpose(1, 2)
        return x * torch.cos(angle) + rotated(x) * torch.sin(angle)


class Good(torch.nn.Module):
    """Cosines and sines made once."""

    def __init__(self) -> None:
        super().__init__()
        angle = angles(SIDE)
        self.register_buffer("cos", torch.cat([angle, angle], -1).cos())
        self.register_buffer("sin", torch.cat([angle, angle], -1).sin())

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        x = patches.flatten(2).transpose(1, 2)
        return x * self.cos + rotated(x) * self.sin


def examples() -> list[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(batch, WIDTH, SIDE, SIDE, generator=generator),) for batch in (2, 3)]
