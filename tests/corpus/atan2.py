"""atan2 becomes Div, Atan and two Where by the signs (one finding for all of them), and is NaN at the origin."""

from __future__ import annotations

import torch

INPUT_NAMES = ("boxes",)
DYNAMIC_AXES: dict[str, dict[int, str]] = {"boxes": {0: "batch"}}
GRAPH_RULES = ("atan2",)
REPAIRS = ()


class Bad(torch.nn.Module):
    """Angle of rotated boxes from its sine and cosine."""

    def forward(self, boxes: torch.Tensor) -> torch.Tensor:
        return torch.atan2(boxes[..., 4], boxes[..., 5])


class Good(torch.nn.Module):
    """atan2(y, x) = atan(y / x) + pi * sign(y) * [x < 0] away from x = 0."""

    def forward(self, boxes: torch.Tensor) -> torch.Tensor:
        y, x = boxes[..., 4], boxes[..., 5]
        left, upper = (x < 0).to(y.dtype), (y >= 0).to(y.dtype)
        return torch.atan(y / x) + left * torch.pi * (2.0 * upper - 1.0)


def examples() -> list[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(batch, 10, 6, generator=generator),) for batch in (2, 3)]
