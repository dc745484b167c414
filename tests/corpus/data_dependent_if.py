"""A scripted branch on a tensor's value is an If node."""

from __future__ import annotations

import torch

INPUT_NAMES = ("logits",)
DYNAMIC_AXES: dict[str, dict[int, str]] = {"logits": {0: "batch"}}
GRAPH_RULES = ("data-dependent-if",)
REPAIRS = ()


@torch.jit.script
def calibrated(logits: torch.Tensor) -> torch.Tensor:
    """Sharpen the scores of a picture set in which nothing is certain."""
    return logits * 2.0 if bool(logits.max() < 0.0) else logits - 0.5


class Bad(torch.nn.Module):
    def forward(self, logits: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(calibrated(logits))


class Good(torch.nn.Module):
    """Both branches, mixed by the condition as a number."""

    def forward(self, logits: torch.Tensor) -> torch.Tensor:
        uncertain = (logits.max() < 0.0).to(logits.dtype)
        return torch.sigmoid(uncertain * (logits * 2.0) + (1.0 - uncertain) * (logits - 0.5))


def examples() -> list[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(0)
    certain, uncertain = torch.randn(2, 6, 4, generator=generator), -torch.rand(3, 6, 4, generator=generator) - 0.1
    return [(certain,), (uncertain,)]
