"""Arithmetic in float64, which TensorRT does not have."""

from __future__ import annotations

import torch

INPUT_NAMES = ("x",)
DYNAMIC_AXES: dict[str, dict[int, str]] = {"x": {0: "batch"}}
GRAPH_RULES = ("float64",)
REPAIRS = ()


class Bad(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x.double().cumsum(1) / x.shape[1]).float()


class Good(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.cumsum(1) / x.shape[1]


def examples() -> list[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(0)
    return [(torch.rand(batch, 12, generator=generator),) for batch in (2, 3)]
