"""for i in range(tensor) runs as often as on the traced example."""

from __future__ import annotations

import torch

INPUT_NAMES = ("reference", "rounds")
DYNAMIC_AXES: dict[str, dict[int, str]] = {"reference": {0: "batch"}, "rounds": {0: "batch"}}
GRAPH_RULES = ("baked-item",)
REPAIRS = ()

ROUNDS = 4


class Bad(torch.nn.Module):
    def forward(self, reference: torch.Tensor, rounds: torch.Tensor) -> torch.Tensor:
        for _ in range(rounds.max()):
            reference = (reference * 1.5).clamp(0.0, 1.0)
        return reference


class Good(torch.nn.Module):
    """As many rounds as there can be; those beyond the count change nothing."""

    def forward(self, reference: torch.Tensor, rounds: torch.Tensor) -> torch.Tensor:
        last = rounds.max()
        for i in range(ROUNDS):
            active = (last > i).to(reference.dtype)
            reference = (reference * (1.0 + 0.5 * active)).clamp(0.0, 1.0)
        return reference


def examples() -> list[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(0)
    rounds = [torch.tensor([3, 1]), torch.tensor([0, 1, ROUNDS])]
    return [(torch.rand(len(one), 6, 2, generator=generator), one) for one in rounds]
