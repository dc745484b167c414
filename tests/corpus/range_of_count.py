"""arange(mask.sum()) is a Range over a number computed on the device."""

from __future__ import annotations

import torch

INPUT_NAMES = ("largest", "labels")
DYNAMIC_AXES: dict[str, dict[int, str]] = {"labels": {0: "objects"}}
GRAPH_RULES = ("range-of-execution-tensor",)
REPAIRS = ()


class Bad(torch.nn.Module):
    """Track identities: the largest so far, and one more for each new object (label 1)."""

    def forward(self, largest: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return largest + torch.arange((labels == 1).sum())


class Good(torch.nn.Module):
    """The count as a shape."""

    def forward(self, largest: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return largest + torch.arange((labels == 1).nonzero().shape[0])


def examples() -> list[tuple[torch.Tensor, ...]]:
    labels = [torch.tensor([0, 1, 0, 1, 1]), torch.tensor([1, 0, 0, 0, 2, 0, 1])]
    return [(torch.tensor([last]), one) for last, one in zip((7, 100), labels, strict=True)]
