"""len(tensor) is the traced size, whatever size comes later."""

from __future__ import annotations

import torch

INPUT_NAMES = ("boxes",)
DYNAMIC_AXES: dict[str, dict[int, str]] = {"boxes": {0: "batch"}}
GRAPH_RULES = ()
SOURCE_RULES = ("py-tensor-len",)
REPAIRS = ()


class Bad(torch.nn.Module):
    """Offsets of the pictures, so that classes of different pictures do not meet."""

    def forward(self, boxes: torch.Tensor) -> torch.Tensor:
        return boxes + 4.0 * torch.arange(len(boxes))[:, None, None]


class Good(torch.nn.Module):
    def forward(self, boxes: torch.Tensor) -> torch.Tensor:
        return boxes + 4.0 * torch.arange(boxes.shape[0])[:, None, None]


def examples() -> list[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(0)
    return [(torch.rand(batch, 9, 4, generator=generator),) for batch in (2, 3)]
