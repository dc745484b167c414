"""x[:, :n] with n computed from data is a Slice whose end TensorRT cannot know on the host."""

from __future__ import annotations

import torch

INPUT_NAMES = ("points", "lengths")
DYNAMIC_AXES: dict[str, dict[int, str]] = {"points": {0: "sweeps", 1: "points"}, "lengths": {0: "sweeps"}}
GRAPH_RULES = ("dynamic-slice",)
REPAIRS = ()


class Bad(torch.nn.Module):
    """Sum over as many points as the longest sweep has."""

    def forward(self, points: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return points[:, : lengths.max()].sum(1)


class Good(torch.nn.Module):
    def forward(self, points: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        kept = torch.arange(points.shape[1]) < lengths.max()
        return (points * kept.to(points.dtype)[None, :, None]).sum(1)


def examples() -> list[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(0)
    lengths = [torch.tensor([3, 5]), torch.tensor([6, 2, 1])]
    return [(torch.randn(len(one), 9, 4, generator=generator), one) for one in lengths]
