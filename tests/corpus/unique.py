"""torch.unique is a Unique node, which TensorRT does not have."""

from __future__ import annotations

import torch

INPUT_NAMES = ("logits", "labels")
DYNAMIC_AXES: dict[str, dict[int, str]] = {"logits": {0: "batch"}}
GRAPH_RULES = ("unique",)
REPAIRS = ()

OBJECTS = 6


class Bad(torch.nn.Module):
    """Logits divided by the number of classes among the pictures' labels."""

    def forward(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return logits / torch.unique(labels).shape[0]


class Good(torch.nn.Module):
    """Sorted, a value is new where it differs from the one before; topk of all, as sort() leaves k to the graph."""

    def forward(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        ordered = labels.topk(OBJECTS).values
        distinct = (ordered[1:] < ordered[:-1]).to(logits.dtype).sum() + 1.0
        return logits / distinct


def examples() -> list[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(0)
    labels = [torch.tensor([0, 3, 0, 1, 3, 9]), torch.tensor([1, 0, 0, 7, 2, 0])]
    return [(torch.randn(batch, 6, generator=generator), one) for batch, one in zip((2, 3), labels, strict=True)]
