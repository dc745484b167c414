"""A python `if` on a tensor is decided once, on the traced example."""

from __future__ import annotations

import torch

INPUT_NAMES = ("scores",)
DYNAMIC_AXES: dict[str, dict[int, str]] = {"scores": {0: "batch"}}
GRAPH_RULES = ()
SOURCE_RULES = ("py-tensor-if",)
REPAIRS = ()


class Bad(torch.nn.Module):
    """Scores, brought into 0..1 where they are not."""

    def forward(self, scores: torch.Tensor) -> torch.Tensor:
        if scores.max() > 1.0:
            scores = scores / scores.max()
        return scores


class Good(torch.nn.Module):
    def forward(self, scores: torch.Tensor) -> torch.Tensor:
        return scores / scores.max().clamp(min=1.0)


def examples() -> list[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(0)
    return [(scale * torch.rand(b, 9, generator=generator),) for b, scale in ((2, 1.0), (3, 7.0))]
