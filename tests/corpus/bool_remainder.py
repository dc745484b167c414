"""mask % 2 is a Mod of what was a boolean."""

from __future__ import annotations

import torch

INPUT_NAMES = ("boxes",)
DYNAMIC_AXES: dict[str, dict[int, str]] = {"boxes": {0: "batch"}}
GRAPH_RULES = ("bool-arithmetic",)
REPAIRS = ()


class Bad(torch.nn.Module):
    """Boxes wider than high, odd or even times."""

    def forward(self, boxes: torch.Tensor) -> torch.Tensor:
        wide = boxes[..., 2] > boxes[..., 3]
        return boxes.sum(-1) * (wide.long() % 2)


class Good(torch.nn.Module):
    """A boolean is its own remainder."""

    def forward(self, boxes: torch.Tensor) -> torch.Tensor:
        wide = boxes[..., 2] > boxes[..., 3]
        return boxes.sum(-1) * wide.long()


def examples() -> list[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(0)
    return [(torch.rand(batch, 5, 4, generator=generator),) for batch in (2, 3)]
