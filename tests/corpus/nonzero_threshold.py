"""x[score > threshold] is NonZero over a comparison of floats: as many rows as pass."""

from __future__ import annotations

import torch

INPUT_NAMES = ("features", "scores")
DYNAMIC_AXES: dict[str, dict[int, str]] = {"features": {0: "queries"}, "scores": {0: "queries"}}
GRAPH_RULES = ("nonzero-threshold",)
REPAIRS = ()

KEEP = 4


class Bad(torch.nn.Module):
    """Features of the detections above a threshold, pooled."""

    def forward(self, features: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return features[scores > 0.5].sum(0)


class Good(torch.nn.Module):
    """The best k, of which those below the threshold weigh nothing."""

    def forward(self, features: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        best, index = scores.topk(KEEP)
        return (features[index] * (best > 0.5).to(features.dtype)[:, None]).sum(0)


def examples() -> list[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(0)
    scores = [torch.tensor([0.9, 0.2, 0.7, 0.1, 0.4]), torch.tensor([0.3, 0.95, 0.6, 0.55, 0.2, 0.1, 0.8])]
    return [(torch.randn(len(one), 8, generator=generator), one) for one in scores]
