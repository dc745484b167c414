"""arange(lengths.max()) is a Range over a number computed on the device."""

from __future__ import annotations

import torch

INPUT_NAMES = ("points", "lengths")
DYNAMIC_AXES: dict[str, dict[int, str]] = {"points": {0: "sweeps", 1: "points"}, "lengths": {0: "sweeps"}}
GRAPH_RULES = ("range-of-execution-tensor",)
REPAIRS = ()


class Bad(torch.nn.Module):
    """Which points of each sweep are real; the sweeps are padded to the longest."""

    def forward(self, points: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        real = torch.arange(lengths.max())[None] < lengths[:, None]
        return (points * real.to(points.dtype)[..., None]).sum(1)


class Good(torch.nn.Module):
    def forward(self, points: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        real = torch.arange(points.shape[1])[None] < lengths[:, None]
        return (points * real.to(points.dtype)[..., None]).sum(1)


def examples() -> list[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(0)
    lengths = [torch.tensor([3, 5]), torch.tensor([7, 2, 1])]
    return [(torch.randn(len(one), int(one.max()), 4, generator=generator), one) for one in lengths]
