"""Height and width vary, and a position embedding of one size is added."""

from __future__ import annotations

import torch

INPUT_NAMES = ("features",)
DYNAMIC_AXES: dict[str, dict[int, str]] = {"features": {0: "batch", 2: "height", 3: "width"}}
GRAPH_RULES = ("fixed-positions",)
REPAIRS = ()

SIDE, CHANNELS = 4, 6


class Bad(torch.nn.Module):
    """Runs at one size only, though the file says that sizes vary."""

    def __init__(self) -> None:
        super().__init__()
        self.positions = torch.nn.Parameter(torch.linspace(-1.0, 1.0, SIDE * SIDE * CHANNELS).view(1, -1, CHANNELS))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return features.flatten(2).transpose(1, 2) + self.positions


class Good(torch.nn.Module):
    """Positions resized to the size at hand."""

    def __init__(self) -> None:
        super().__init__()
        self.positions = torch.nn.Parameter(torch.linspace(-1.0, 1.0, SIDE * SIDE * CHANNELS).view(1, -1, CHANNELS))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        grid = self.positions.transpose(1, 2).reshape(1, CHANNELS, SIDE, SIDE)
        grid = torch.nn.functional.interpolate(grid, features.shape[2:], mode="bilinear", align_corners=False)
        return (features + grid).flatten(2).transpose(1, 2)


def examples() -> list[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(batch, CHANNELS, SIDE, SIDE, generator=generator),) for batch in (2, 3)]
