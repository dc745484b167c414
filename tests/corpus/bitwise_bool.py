"""&, | and ~ on booleans are And, Or and Not."""

from __future__ import annotations

import torch

INPUT_NAMES = ("boxes", "scores")
DYNAMIC_AXES: dict[str, dict[int, str]] = {"boxes": {0: "batch"}, "scores": {0: "batch"}}
GRAPH_RULES = ("bool-arithmetic",)
REPAIRS = ()


class Bad(torch.nn.Module):
    """Scores of the boxes that are large enough and lie inside, or are certain."""

    def forward(self, boxes: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        center, size = boxes[..., :2], boxes[..., 2:]
        inside = (center > 0.01).all(-1) & (center < 0.99).all(-1)
        small = (size < 0.02).any(-1)
        return scores * ((inside & ~small) | (scores > 0.9)).to(scores.dtype)


class Good(torch.nn.Module):
    """a & b = a * b; a | b = min(a + b, 1); ~a = 1 - a, all over integers."""

    def forward(self, boxes: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        center, size = boxes[..., :2], boxes[..., 2:]
        inside = (center > 0.01).int().prod(-1) * (center < 0.99).int().prod(-1)
        small = (size < 0.02).int().amax(-1)
        kept = (inside * (1 - small) + (scores > 0.9).int()).clamp(max=1)
        return scores * kept.to(scores.dtype)


def examples() -> list[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(0)
    return [(torch.rand(b, 12, 4, generator=generator), torch.rand(b, 12, generator=generator)) for b in (2, 3)]
