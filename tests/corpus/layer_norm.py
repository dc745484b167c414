"""A layer norm spelt out is six nodes with a square in between, and overflows in FP16."""

from __future__ import annotations

import torch

INPUT_NAMES = ("x",)
DYNAMIC_AXES: dict[str, dict[int, str]] = {"x": {0: "batch"}}
GRAPH_RULES = ("decomposed-layer-norm",)
REPAIRS = ()


class Bad(torch.nn.Module):
    """Over the channels of [N, C, H, W], as ConvNeXt's."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(0.5, 1.5, 6))
        self.bias = torch.nn.Parameter(torch.linspace(-0.1, 0.1, 6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean = x.mean(1, keepdim=True)
        variance = (x - mean).pow(2).mean(1, keepdim=True)
        x = (x - mean) / torch.sqrt(variance + 1e-6)
        return self.weight[:, None, None] * x + self.bias[:, None, None]


class Good(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(0.5, 1.5, 6))
        self.bias = torch.nn.Parameter(torch.linspace(-0.1, 0.1, 6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.nn.functional.layer_norm(x.permute(0, 2, 3, 1), (6,), self.weight, self.bias, 1e-6)
        return x.permute(0, 3, 1, 2)


def examples() -> list[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(batch, 6, 4, 5, generator=generator),) for batch in (2, 3)]
