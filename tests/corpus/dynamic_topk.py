"""topk with a k that is computed in the graph is a TopK whose k is no constant."""

from __future__ import annotations

import torch

INPUT_NAMES = ("scores",)
DYNAMIC_AXES: dict[str, dict[int, str]] = {"scores": {0: "batch", 1: "anchors"}}
GRAPH_RULES = ("dynamic-topk",)
REPAIRS = ()

KEEP = 6


class Bad(torch.nn.Module):
    """The best quarter of the anchors."""

    def forward(self, scores: torch.Tensor) -> torch.Tensor:
        return torch.topk(scores, scores.shape[1] // 4, dim=1).values


class Good(torch.nn.Module):
    def forward(self, scores: torch.Tensor) -> torch.Tensor:
        return torch.topk(scores, KEEP, dim=1).values


def examples() -> list[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(0)
    return [(torch.rand(batch, anchors, generator=generator),) for batch, anchors in ((2, 24), (3, 27))]
