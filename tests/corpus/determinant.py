"""torch.linalg.det is a Det node, which TensorRT does not have."""

from __future__ import annotations

import torch

INPUT_NAMES = ("covariance",)
DYNAMIC_AXES: dict[str, dict[int, str]] = {"covariance": {0: "batch"}}
GRAPH_RULES = ("unsupported-op",)
REPAIRS = ()


class Bad(torch.nn.Module):
    """Area of the ellipse of a rotated box's Gaussian, up to pi."""

    def forward(self, covariance: torch.Tensor) -> torch.Tensor:
        return torch.linalg.det(covariance).clamp(min=0.0).sqrt()


class Good(torch.nn.Module):
    def forward(self, covariance: torch.Tensor) -> torch.Tensor:
        a, b = covariance[..., 0, 0], covariance[..., 0, 1]
        c, d = covariance[..., 1, 0], covariance[..., 1, 1]
        return (a * d - b * c).clamp(min=0.0).sqrt()


def examples() -> list[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(0)
    roots = [torch.randn(batch, 5, 2, 2, generator=generator) for batch in (2, 3)]
    return [(root @ root.transpose(-1, -2) + 0.1 * torch.eye(2),) for root in roots]
