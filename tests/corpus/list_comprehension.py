"""A list comprehension over tensors; older exporters cannot trace it."""

from __future__ import annotations

import torch

INPUT_NAMES = ("fine", "coarse")
DYNAMIC_AXES: dict[str, dict[int, str]] = {"fine": {0: "batch"}, "coarse": {0: "batch"}}
GRAPH_RULES = ()
SOURCE_RULES = ("py-list-comprehension",)
REPAIRS = ()


class Bad(torch.nn.Module):
    """Levels of a pyramid as one sequence of tokens."""

    def forward(self, fine: torch.Tensor, coarse: torch.Tensor) -> torch.Tensor:
        return torch.cat([level.flatten(2).transpose(1, 2) for level in (fine, coarse)], 1)


class Good(torch.nn.Module):
    def forward(self, fine: torch.Tensor, coarse: torch.Tensor) -> torch.Tensor:
        tokens = []
        for level in (fine, coarse):
            tokens.append(level.flatten(2).transpose(1, 2))
        return torch.cat(tokens, 1)


def examples() -> list[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(0)
    sizes = (8, 4)
    return [tuple(torch.rand(batch, 6, size, size, generator=generator) for size in sizes) for batch in (2, 3)]
