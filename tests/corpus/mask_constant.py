"""A mask of -1e9 is -inf in FP16, and -inf minus -inf is NaN."""

from __future__ import annotations

import torch

INPUT_NAMES = ("scores", "valid")
DYNAMIC_AXES: dict[str, dict[int, str]] = {"scores": {0: "batch"}, "valid": {0: "batch"}}
GRAPH_RULES = ("mask-beyond-fp16",)
REPAIRS = ()


class Bad(torch.nn.Module):
    def forward(self, scores: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
        return torch.softmax(scores + (1.0 - valid[:, None]) * -1e9, -1)


class Good(torch.nn.Module):
    """-1e4: FP16 holds it, and exp(-1e4) is 0 as well."""

    def forward(self, scores: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
        return torch.softmax(scores + (1.0 - valid[:, None]) * -1e4, -1)


def examples() -> list[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(0)
    return [
        (torch.randn(b, 7, 7, generator=generator), (torch.arange(7) < 5).float().expand(b, 7).clone()) for b in (2, 3)
    ]
