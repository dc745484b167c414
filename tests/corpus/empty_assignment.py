"""x[:, i] = v is a scatter, also into a tensor that may have no rows."""

from __future__ import annotations

import torch

INPUT_NAMES = ("tokens", "labels")
DYNAMIC_AXES: dict[str, dict[int, str]] = {"tokens": {0: "tokens"}, "labels": {0: "tokens"}}
GRAPH_RULES = ("may-be-empty",)
REPAIRS = ()
BESIDE = {  # both keep as many tokens as have a label
    "Bad": ("data-dependent-size", "reshape-allowzero"),  # the exporter brings the number to the rows' shape
    "Good": ("data-dependent-size",),
}


class Bad(torch.nn.Module):
    """The first channel of the tokens with a label is 1."""

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        kept = tokens.index_select(0, labels.nonzero()[:, 0])
        kept[:, 0] = 1.0
        return kept.sum(0)


class Good(torch.nn.Module):
    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        kept = tokens.index_select(0, labels.nonzero()[:, 0])
        return torch.cat([torch.ones_like(kept[:, :1]), kept[:, 1:]], 1).sum(0)


def examples() -> list[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(0)
    labels = [torch.tensor([0, 3, 0, 1, 2]), torch.tensor([1, 0, 0, 7, 2, 0, 0]), torch.zeros(4, dtype=torch.int64)]
    return [(torch.randn(len(one), 8, generator=generator), one) for one in labels]
