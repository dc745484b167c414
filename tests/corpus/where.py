"""torch.where between two computed branches is a Where, which TensorRT may build as an IffCondition."""

from __future__ import annotations

import torch

INPUT_NAMES = ("score", "iou")
DYNAMIC_AXES: dict[str, dict[int, str]] = {"score": {0: "batch"}, "iou": {0: "batch"}}
GRAPH_RULES = ("where-condition",)
REPAIRS = ()


class Bad(torch.nn.Module):
    """IoU-aware scores: the geometric mean where a box is trusted, the class score elsewhere."""

    def forward(self, score: torch.Tensor, iou: torch.Tensor) -> torch.Tensor:
        score, iou = score.sigmoid(), iou.sigmoid()
        return torch.where(iou > 0.5, torch.sqrt(score * iou), score * 0.5)


class Good(torch.nn.Module):
    def forward(self, score: torch.Tensor, iou: torch.Tensor) -> torch.Tensor:
        score, iou = score.sigmoid(), iou.sigmoid()
        trusted = (iou > 0.5).to(score.dtype)
        return trusted * torch.sqrt(score * iou) + (1.0 - trusted) * (score * 0.5)


def examples() -> list[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(2, 20), (3, 20)]
    return [(torch.randn(shape, generator=generator), torch.randn(shape, generator=generator)) for shape in shapes]
