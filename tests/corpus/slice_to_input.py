"""x[:n] with an input n: the engine wants its values, not its shape, in each profile."""

from __future__ import annotations

import torch

INPUT_NAMES = ("points", "count")
DYNAMIC_AXES: dict[str, dict[int, str]] = {"points": {0: "points"}}
GRAPH_RULES = ("dynamic-slice",)
REPAIRS = ()


class Bad(torch.nn.Module):
    """Sum over the first points."""

    def forward(self, points: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
        return points[: count[0]].sum(0)


class Good(torch.nn.Module):
    def forward(self, points: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
        kept = torch.arange(points.shape[0]) < count
        return (points * kept.to(points.dtype)[:, None]).sum(0)


def examples() -> list[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(9, 4, generator=generator), torch.tensor([count])) for count in (3, 7)]
