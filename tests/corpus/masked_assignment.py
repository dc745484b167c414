"""a[mask] = b[mask] is NonZero, GatherND and ScatterND between tensors whose sizes depend on the data."""

from __future__ import annotations

import torch

INPUT_NAMES = ("state", "update", "seen")
DYNAMIC_AXES: dict[str, dict[int, str]] = {"state": {0: "tracks"}, "update": {0: "tracks"}, "seen": {0: "tracks"}}
GRAPH_RULES = ("bool-index",)
REPAIRS = ("bool_index",)


class Bad(torch.nn.Module):
    """Tracks that were seen again (class 1) take their new state."""

    def forward(self, state: torch.Tensor, update: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        state, again = state.clone(), seen >= 1
        state[again] = update[again]
        return state


class Good(torch.nn.Module):
    def forward(self, state: torch.Tensor, update: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        again = (seen >= 1).to(state.dtype)[:, None]
        return state * (1.0 - again) + update * again


def examples() -> list[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(0)
    seen = [torch.tensor([0, 1, 0, 1, 1]), torch.tensor([1, 0, 0, 1, 0, 0, 0])]
    return [
        (torch.randn(len(one), 8, generator=generator), torch.randn(len(one), 8, generator=generator), one)
        for one in seen
    ]
