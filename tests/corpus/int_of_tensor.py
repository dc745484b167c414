"""int(tensor) writes the traced value into the file, as .item() does."""

from __future__ import annotations

import torch

INPUT_NAMES = ("logits", "rank")
DYNAMIC_AXES: dict[str, dict[int, str]] = {"logits": {0: "batch"}, "rank": {0: "batch"}}
GRAPH_RULES = ("baked-item",)
REPAIRS = ()


class Bad(torch.nn.Module):
    """Logits shifted by the index of the best class."""

    def forward(self, logits: torch.Tensor, rank: torch.Tensor) -> torch.Tensor:
        return logits * (1 + int(rank.max()))


class Good(torch.nn.Module):
    def forward(self, logits: torch.Tensor, rank: torch.Tensor) -> torch.Tensor:
        return logits * (1 + rank.max())


def examples() -> list[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(0)
    ranks = [torch.tensor([1, 2]), torch.tensor([0, 4, 1])]
    return [(torch.rand(len(rank), 6, generator=generator), rank) for rank in ranks]
