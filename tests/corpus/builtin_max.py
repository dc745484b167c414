"""max() of python compares tensors and keeps the one that won on the traced example."""

from __future__ import annotations

import torch

INPUT_NAMES = ("left", "right")
DYNAMIC_AXES: dict[str, dict[int, str]] = {"left": {0: "batch"}, "right": {0: "batch"}}
GRAPH_RULES = ()
SOURCE_RULES = ("py-builtin-min-max",)
REPAIRS = ()


class Bad(torch.nn.Module):
    """Two maps on one scale."""

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return torch.cat([left, right], 1) / max(left.max(), right.max())


class Good(torch.nn.Module):
    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return torch.cat([left, right], 1) / torch.maximum(left.max(), right.max())


def examples() -> list[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(0)
    shape = (2, 3, 4, 4)
    left, right = torch.rand(shape, generator=generator), 2.0 * torch.rand(shape, generator=generator)
    return [(left, right), (right[:1], left[:1])]
