"""squeeze(axis) where the axis's size is not known is an If whose branches differ in rank."""

from __future__ import annotations

import torch

INPUT_NAMES = ("clip",)
DYNAMIC_AXES: dict[str, dict[int, str]] = {"clip": {0: "batch", 1: "frames"}}
GRAPH_RULES = ("if-from-squeeze",)
REPAIRS = ()  # the mean takes both ranks: only who calls it knows that there is one frame


class Bad(torch.nn.Module):
    """A detector for clips, called with one frame."""

    def forward(self, clip: torch.Tensor) -> torch.Tensor:
        return clip.squeeze(1).mean((2, 3))


class Good(torch.nn.Module):
    def forward(self, clip: torch.Tensor) -> torch.Tensor:
        return clip[:, 0].mean((2, 3))


def examples() -> list[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(0)
    return [(torch.rand(batch, 1, 3, 8, 8, generator=generator),) for batch in (2, 3)]
