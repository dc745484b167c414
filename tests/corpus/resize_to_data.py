"""interpolate to a size that is computed on the device."""

from __future__ import annotations

import torch

INPUT_NAMES = ("features", "sizes")
DYNAMIC_AXES: dict[str, dict[int, str]] = {"features": {0: "batch"}, "sizes": {0: "batch"}}
GRAPH_RULES = ("resize-mode",)
REPAIRS = ()

SIDE = 6


class Bad(torch.nn.Module):
    """The mean of features that are brought to the largest size; of constant features it is the same at each size."""

    def forward(self, features: torch.Tensor, sizes: torch.Tensor) -> torch.Tensor:
        side = sizes.max()
        flat = features * 0.0 + features.mean((2, 3), keepdim=True)
        return torch.nn.functional.interpolate(flat, (side, side), mode="nearest").mean((2, 3))


class Good(torch.nn.Module):
    """One size for all."""

    def forward(self, features: torch.Tensor, sizes: torch.Tensor) -> torch.Tensor:
        flat = features * 0.0 + features.mean((2, 3), keepdim=True) + 0.0 * sizes.max()
        return torch.nn.functional.interpolate(flat, (SIDE, SIDE), mode="nearest").mean((2, 3))


def examples() -> list[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(0)
    sizes = [torch.tensor([3, 5]), torch.tensor([6, 2, 7])]
    return [(torch.rand(len(one), 4, 4, 4, generator=generator), one) for one in sizes]
