"""x[mask] = constant is a Where."""

from __future__ import annotations

import torch

INPUT_NAMES = ("scores", "labels")
DYNAMIC_AXES: dict[str, dict[int, str]] = {"scores": {0: "batch"}, "labels": {0: "batch"}}
GRAPH_RULES = ("where-condition",)
REPAIRS = ()


class Bad(torch.nn.Module):
    """Scores of the background class (0) get one value."""

    def forward(self, scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        scores = scores.sigmoid()
        scores[labels == 0] = 0.25
        return scores


class Good(torch.nn.Module):
    def forward(self, scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        background = (labels == 0).to(scores.dtype)
        return scores.sigmoid() * (1.0 - background) + 0.25 * background


def examples() -> list[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(0)
    return [(torch.rand(b, 9, generator=generator), torch.randint(3, (b, 9), generator=generator)) for b in (2, 3)]
