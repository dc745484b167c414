"""Scores that are computed and normalised in float32 keep an attention out of the fused kernel; a float32 softmax
does not.
"""

from __future__ import annotations

import torch

INPUT_NAMES = ("q", "k", "v")
DYNAMIC_AXES: dict[str, dict[int, str]] = {name: {0: "batch"} for name in INPUT_NAMES}
GRAPH_RULES = ("attention-will-not-fuse",)
REPAIRS = ()


class Bad(torch.nn.Module):
    """As implementations do that upcast attention for its sums."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k, v = q.half(), k.half(), v.half()
        scores = q.float() @ k.float().transpose(-2, -1) * 0.25
        weights = scores.softmax(-1).to(v.dtype)
        return (weights @ v).float()


class Good(torch.nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k, v = q.half(), k.half(), v.half()
        scores = q @ k.transpose(-2, -1) * 0.25
        weights = scores.float().softmax(-1).to(v.dtype)
        return (weights @ v).float()


def examples() -> list[tuple[torch.Tensor, ...]]:
    """Whole numbers, and scores so far apart that each weight is 0 or 1: float16 holds them all."""
    generator = torch.Generator().manual_seed(0)

    def chosen(batch: int) -> torch.Tensor:
        rows = [torch.randperm(16, generator=generator) for _ in range(2 * batch)]
        return 32 * torch.nn.functional.one_hot(torch.stack(rows), 16).float().reshape(batch, 2, 16, 16)

    values = [torch.randint(-8, 9, (batch, 2, 16, 16), generator=generator).float() for batch in (1, 2)]
    return [(chosen(batch), chosen(batch), v) for batch, v in zip((1, 2), values, strict=True)]
