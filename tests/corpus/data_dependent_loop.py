"""A scripted loop whose trip count is a tensor's value is a Loop node."""

from __future__ import annotations

import torch

INPUT_NAMES = ("reference", "delta", "rounds")
DYNAMIC_AXES: dict[str, dict[int, str]] = {"reference": {0: "batch"}, "delta": {0: "batch"}, "rounds": {0: "batch"}}
GRAPH_RULES = ("data-dependent-loop",)
REPAIRS = ()

ROUNDS = 4


@torch.jit.script
def refined(reference: torch.Tensor, delta: torch.Tensor, rounds: torch.Tensor) -> torch.Tensor:
    """Move reference points by a step that halves each round."""
    for _ in range(int(rounds)):
        reference = (reference + delta).clamp(0.0, 1.0)
        delta = delta * 0.5
    return reference


class Bad(torch.nn.Module):
    def forward(self, reference: torch.Tensor, delta: torch.Tensor, rounds: torch.Tensor) -> torch.Tensor:
        return refined(reference, delta, rounds.max())


class Good(torch.nn.Module):
    """As many rounds as there can be; those beyond the count move nothing."""

    def forward(self, reference: torch.Tensor, delta: torch.Tensor, rounds: torch.Tensor) -> torch.Tensor:
        last = rounds.max()
        for i in range(ROUNDS):
            active = (last > i).to(delta.dtype)
            reference = (reference + active * delta).clamp(0.0, 1.0)
            delta = delta * 0.5
        return reference


def examples() -> list[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(0)

    def one(batch: int, rounds: int) -> tuple[torch.Tensor, ...]:
        shape = (batch, 6, 2)
        reference, delta = torch.rand(shape, generator=generator), 0.2 * torch.randn(shape, generator=generator)
        return reference, delta, torch.full((batch,), rounds)

    return [one(2, 3), one(3, ROUNDS), one(1, 1)]
