"""A kernel made in forward has a type of its own: the module in half precision does not run."""

from __future__ import annotations

import torch

INPUT_NAMES = ("picture",)
DYNAMIC_AXES: dict[str, dict[int, str]] = {"picture": {0: "batch", 2: "height", 3: "width"}}
GRAPH_RULES = ()
SOURCE_RULES = ("py-dtype-constant",)
REPAIRS = ()
EDGES = [[[[0.0, 1.0, 0.0], [1.0, -4.0, 1.0], [0.0, 1.0, 0.0]]]]


class Bad(torch.nn.Module):
    """Edges of each channel, by a Laplace kernel."""

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        kernel = torch.tensor(EDGES, dtype=torch.float32)
        return torch.nn.functional.conv2d(picture, kernel.expand(3, 1, 3, 3), padding=1, groups=3)


class Good(torch.nn.Module):
    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        kernel = torch.tensor(EDGES, dtype=picture.dtype)
        return torch.nn.functional.conv2d(picture, kernel.expand(3, 1, 3, 3), padding=1, groups=3)


def examples() -> list[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(0)
    return [(torch.rand(batch, 3, size, 8, generator=generator),) for batch, size in ((2, 8), (3, 9))]
