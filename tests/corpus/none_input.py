"""An input that may be None is there or not there for good once the file is written."""

from __future__ import annotations

import torch

INPUT_NAMES = ("features", "previous")
DYNAMIC_AXES: dict[str, dict[int, str]] = {"features": {0: "batch"}, "previous": {0: "batch"}}
GRAPH_RULES = ()
SOURCE_RULES = ("py-none-check",)
REPAIRS = ()


class Bad(torch.nn.Module):
    """Features of a frame, mixed with those of the frame before, which the first frame does not have."""

    def forward(self, features: torch.Tensor, previous: torch.Tensor | None = None) -> torch.Tensor:
        if previous is not None:
            features = 0.5 * features + 0.5 * previous
        return features


class Good(torch.nn.Module):
    """Always there; for the first frame the caller passes the features themselves."""

    def forward(self, features: torch.Tensor, previous: torch.Tensor) -> torch.Tensor:
        return 0.5 * features + 0.5 * previous


def examples() -> list[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(0)
    return [(torch.rand(b, 9, generator=generator), torch.rand(b, 9, generator=generator)) for b in (2, 3)]
