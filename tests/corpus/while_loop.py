"""A python `while` on a tensor runs as often as on the traced example."""

from __future__ import annotations

import torch

INPUT_NAMES = ("x",)
DYNAMIC_AXES: dict[str, dict[int, str]] = {"x": {0: "batch"}}
GRAPH_RULES = ()
SOURCE_RULES = ("py-data-dependent-loop",)
REPAIRS = ()


class Bad(torch.nn.Module):
    """ConversionResult until nothing exceeds 1."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        while x.max() > 1.0:
            x = x * 0.5
        return x


class Good(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        halvings = torch.log2(x.max()).ceil().clamp(min=0.0)
        return x * 0.5**halvings


def examples() -> list[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(0)
    return [(scale * torch.rand(b, 9, generator=generator),) for b, scale in ((2, 5.0), (3, 40.0))]
