"""copy.deepcopy of a traced tensor is an empty one in the file; here every copy is replaced before it is read."""

from __future__ import annotations

import copy

import torch

INPUT_NAMES = ("fine", "coarse")
DYNAMIC_AXES: dict[str, dict[int, str]] = {"fine": {0: "batch"}, "coarse": {0: "batch"}}
GRAPH_RULES = ()
SOURCE_RULES = ("py-deepcopy",)
REPAIRS = ()


class Bad(torch.nn.Module):
    """Two levels of one size, mixed; the caller's list stays as it was."""

    def forward(self, fine: torch.Tensor, coarse: torch.Tensor) -> torch.Tensor:
        given = [fine, coarse]
        levels = copy.deepcopy(given)
        levels[0] = given[0] + given[1]
        levels[1] = given[0] - given[1]
        return torch.cat([*levels, *given], 1)


class Good(torch.nn.Module):
    def forward(self, fine: torch.Tensor, coarse: torch.Tensor) -> torch.Tensor:
        given = [fine, coarse]
        levels = list(given)
        levels[0] = given[0] + given[1]
        levels[1] = given[0] - given[1]
        return torch.cat([*levels, *given], 1)


def examples() -> list[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(0)
    return [tuple(torch.rand(batch, 6, 8, 8, generator=generator) for _ in range(2)) for batch in (2, 3)]
