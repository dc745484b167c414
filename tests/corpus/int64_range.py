"""An integer beyond int32: TensorRT computes indices with 32 bits."""

from __future__ import annotations

import torch

INPUT_NAMES = ("labels",)
DYNAMIC_AXES: dict[str, dict[int, str]] = {"labels": {0: "batch"}}
GRAPH_RULES = ("int64-range",)
REPAIRS = ()


class Bad(torch.nn.Module):
    """Sort by class, then by index, with one key."""

    def forward(self, labels: torch.Tensor) -> torch.Tensor:
        key = labels * 2**33 + torch.arange(labels.shape[1])
        return torch.topk(key, 5, dim=1, largest=False).indices


class Good(torch.nn.Module):
    def forward(self, labels: torch.Tensor) -> torch.Tensor:
        key = labels * 2**12 + torch.arange(labels.shape[1])
        return torch.topk(key, 5, dim=1, largest=False).indices


def examples() -> list[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(0)
    return [(torch.randint(80, (batch, 12), generator=generator),) for batch in (2, 3)]
