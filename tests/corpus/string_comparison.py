"""Strings compared in forward are no part of the graph: one branch is written into the file."""

from __future__ import annotations

import torch

INPUT_NAMES = ("update", "memory")
DYNAMIC_AXES: dict[str, dict[int, str]] = {"update": {0: "batch"}, "memory": {0: "batch"}}
GRAPH_RULES = ()
SOURCE_RULES = ("py-string-comparison",)
REPAIRS = ()


class Bad(torch.nn.Module):
    """The memory of a track counts only within one scene."""

    def forward(
        self, update: torch.Tensor, memory: torch.Tensor, scene: str = "night", previous: str = "night"
    ) -> torch.Tensor:
        if scene != previous:
            memory = torch.zeros_like(memory)
        return 0.5 * update + 0.5 * memory


class Good(torch.nn.Module):
    """Compared outside; the caller zeroes the memory when the scene changes."""

    def forward(self, update: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        return 0.5 * update + 0.5 * memory


def examples() -> list[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(0)
    return [(torch.rand(b, 9, generator=generator), torch.rand(b, 9, generator=generator)) for b in (2, 3)]
