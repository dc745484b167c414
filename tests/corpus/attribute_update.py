"""What forward writes to self is lost: a file has no state between calls."""

from __future__ import annotations

import torch

INPUT_NAMES = ("features",)
DYNAMIC_AXES: dict[str, dict[int, str]] = {"features": {0: "batch"}}
GRAPH_RULES = ()
SOURCE_RULES = ("py-attribute-update",)
REPAIRS = ()


class Bad(torch.nn.Module):
    """Features without their mean, which is kept for the next frame."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = torch.zeros(1)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        self.mean = features.mean((2, 3), keepdim=True)
        return features - self.mean


class Good(torch.nn.Module):
    def forward(self, features: torch.Tensor) -> torch.Tensor:
        mean = features.mean((2, 3), keepdim=True)
        return features - mean


def examples() -> list[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(0)
    return [(torch.rand(batch, 6, 4, 4, generator=generator),) for batch in (2, 3)]
