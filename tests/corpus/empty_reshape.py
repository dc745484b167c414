"""Reshape to sizes that may be 0 copies a size of its input instead, unless allowzero is 1."""

from __future__ import annotations

import torch

INPUT_NAMES = ("tokens", "labels")
DYNAMIC_AXES: dict[str, dict[int, str]] = {"tokens": {0: "tokens"}, "labels": {0: "tokens"}}
GRAPH_RULES = ("reshape-allowzero",)
REPAIRS = ("allowzero",)
BESIDE = dict.fromkeys(("Bad", "Good"), ("data-dependent-size",))  # both keep as many tokens as have a label

HEADS = 2


class Bad(torch.nn.Module):
    """Heads of the tokens with a label; a picture may have none."""

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        index = labels.nonzero()[:, 0]
        kept = tokens.index_select(0, index).transpose(0, 1)
        return kept.reshape(HEADS, kept.shape[0] // HEADS, index.shape[0]) * 2.0


class Good(torch.nn.Module):
    """The size that may be 0 is the one that Reshape infers."""

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        index = labels.nonzero()[:, 0]
        kept = tokens.index_select(0, index).transpose(0, 1)
        return kept.reshape(HEADS, 4, -1) * 2.0


def examples() -> list[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(0)
    labels = [torch.tensor([0, 3, 0, 1, 2]), torch.tensor([1, 0, 0, 7, 2, 0, 0]), torch.zeros(4, dtype=torch.int64)]
    return [(torch.randn(len(one), 8, generator=generator), one) for one in labels]
