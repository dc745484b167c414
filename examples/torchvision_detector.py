"""One-stage detectors of torchvision (SSD, RetinaNet, FCOS) up to NMS, for images of one size: model=torchvision.

takes    images  [N, 3, height, width]      RGB in 0..1; the graph normalises
returns  scores  [N, candidates, classes]   0..1, of the anchors with the highest scores, best first
         boxes   [N, candidates, 4]         xyxy in pixels, clipped to the image

NMS is left to the program that runs the file. Two-stage detectors (Faster, Mask and Keypoint R-CNN) run NMS between
their stages, so the sizes of their tensors depend on the image, and no graph of fixed sizes holds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torchvision.models import get_model
from torchvision.models.detection.image_list import ImageList


def build(name: str, size: Sequence[int], candidates: int = 300, **options: Any) -> torch.nn.Module:
    """Build a detector by its name in torchvision.

    Args:
        size: height and width of the images; RetinaNet and FCOS take multiples of 32.
        candidates: rows that are returned for an image; TensorRT's TopK gives at most 3840.
        options: of torchvision.models.get_model: weights, num_classes.

    Raises:
        ValueError: for a detector of two stages.
    """
    network: Any = get_model(name, weights_backbone=None, **options).eval()
    if hasattr(network, "roi_heads"):
        raise ValueError(f"{name} has NMS between its two stages; take an SSD, a RetinaNet or an FCOS")
    return Candidates(network, size, candidates)


class Candidates(torch.nn.Module):
    """A detector's backbone and head under their names in torchvision, so that its checkpoints fit."""

    mean: torch.Tensor
    std: torch.Tensor
    anchors: torch.Tensor
    limits: torch.Tensor

    def __init__(self, network: Any, size: Sequence[int], candidates: int) -> None:
        super().__init__()
        height, width = size
        self.backbone, self.head = network.backbone, network.head
        self.decode = getattr(network.box_coder, "decode_single", network.box_coder.decode)
        images = torch.zeros(1, 3, height, width)
        with torch.no_grad():
            (anchors,) = network.anchor_generator(ImageList(images, [(height, width)]), [*self.features(images)])
        self.candidates = min(candidates, len(anchors))
        constants = {
            "mean": torch.tensor(network.transform.image_mean)[:, None, None],
            "std": torch.tensor(network.transform.image_std)[:, None, None],
            "anchors": anchors,
            "limits": torch.tensor([width, height, width, height], dtype=torch.float32),
        }
        for name, value in constants.items():
            self.register_buffer(name, value, persistent=False)

    def features(self, images: torch.Tensor) -> list[torch.Tensor]:
        return list(self.backbone(images).values())

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        heads = self.head(self.features((images - self.mean) / self.std))
        logits, codes = heads["cls_logits"], heads["bbox_regression"]
        is_ssd = "SSD" in type(self.head).__name__  # class 0 is background
        scores = logits.softmax(-1)[..., 1:] if is_ssd else logits.sigmoid()
        if "bbox_ctrness" in heads:
            scores = (scores * heads["bbox_ctrness"].sigmoid()).sqrt()
        best = scores.amax(-1).topk(self.candidates, dim=1).indices
        boxes = self.decode(_rows(codes, best).flatten(0, 1), self.anchors[best].flatten(0, 1))
        boxes = boxes.reshape(-1, self.candidates, 4)
        return _rows(scores, best), torch.minimum(boxes.clamp(min=0), self.limits)


def _rows(values: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Gather rows [N, candidates] of values [N, anchors, n]."""
    return values.gather(1, rows[..., None].expand(-1, -1, values.shape[-1]))
