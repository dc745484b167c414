""".item() writes the traced value into the file as a constant; the input is read by nothing."""

from __future__ import annotations

import torch

INPUT_NAMES = ("logits", "temperature")
DYNAMIC_AXES: dict[str, dict[int, str]] = {"logits": {0: "batch"}}
GRAPH_RULES = ("baked-item",)
REPAIRS = ()


class Bad(torch.nn.Module):
    def forward(self, logits: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
        return torch.softmax(logits / temperature.item(), -1)


class Good(torch.nn.Module):
    def forward(self, logits: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
        return torch.softmax(logits / temperature, -1)


def examples() -> list[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(b, 6, generator=generator), torch.tensor([t])) for b, t in ((2, 0.5), (3, 2.0))]
