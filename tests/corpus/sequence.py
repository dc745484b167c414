"""A list of tensors in a scripted function is a sequence, which TensorRT does not have."""

from __future__ import annotations

import torch

INPUT_NAMES = ("levels",)
DYNAMIC_AXES: dict[str, dict[int, str]] = {"levels": {0: "levels"}}
GRAPH_RULES = ("sequence-ops",)
REPAIRS = ()


@torch.jit.script
def normalized(levels: torch.Tensor) -> torch.Tensor:
    """Each level divided by its own largest value."""
    result = []
    for i in range(levels.shape[0]):
        result.append(levels[i] / levels[i].max())
    return torch.stack(result)


class Bad(torch.nn.Module):
    def forward(self, levels: torch.Tensor) -> torch.Tensor:
        return normalized(levels)


class Good(torch.nn.Module):
    def forward(self, levels: torch.Tensor) -> torch.Tensor:
        return levels / levels.amax((1, 2), keepdim=True)


def examples() -> list[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(0)
    return [(torch.rand(levels, 4, 4, generator=generator) + 0.1,) for levels in (3, 2)]
