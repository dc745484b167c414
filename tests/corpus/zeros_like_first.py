"""zeros_like(x[0]) reads a row that is not there where x is empty."""

from __future__ import annotations

import torch

INPUT_NAMES = ("tokens", "labels")
DYNAMIC_AXES: dict[str, dict[int, str]] = {"tokens": {0: "tokens", 1: "channels"}, "labels": {0: "tokens"}}
GRAPH_RULES = ("may-be-empty",)
REPAIRS = ()
BESIDE = dict.fromkeys(("Bad", "Good"), ("data-dependent-size",))  # both keep as many tokens as have a label


class Bad(torch.nn.Module):
    """The sum of the tokens with a label, begun with a row of zeros."""

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        kept = tokens.index_select(0, labels.nonzero()[:, 0])
        return torch.cat([torch.zeros_like(kept[0])[None], kept]).cumsum(0).amax(0)


class Good(torch.nn.Module):
    """The shape of all tokens, of which there is one at least."""

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        kept = tokens.index_select(0, labels.nonzero()[:, 0])
        return torch.cat([torch.zeros_like(tokens[:1]), kept]).cumsum(0).amax(0)


def examples() -> list[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(0)
    labels = [torch.tensor([0, 3, 0, 1, 2]), torch.tensor([1, 0, 0, 7, 2, 0, 0])]
    return [(torch.randn(len(one), 8, generator=generator), one) for one in labels]
