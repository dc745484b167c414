"""x[mask] is NonZero, Transpose and GatherND: its length depends on the data."""

from __future__ import annotations

import torch

INPUT_NAMES = ("tokens", "labels")
DYNAMIC_AXES: dict[str, dict[int, str]] = {"tokens": {0: "tokens"}, "labels": {0: "tokens"}}
GRAPH_RULES = ("bool-index",)
REPAIRS = ()


class Bad(torch.nn.Module):
    """A descriptor of the picture from the tokens that are no padding (class 0)."""

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return tokens[labels >= 1].sum(0)


class Good(torch.nn.Module):
    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return (tokens * (labels >= 1).to(tokens.dtype)[:, None]).sum(0)


def examples() -> list[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(0)
    labels = [torch.tensor([0, 3, 0, 1, 2]), torch.tensor([1, 0, 0, 7, 2, 0, 0])]
    return [(torch.randn(len(one), 8, generator=generator), one) for one in labels]
