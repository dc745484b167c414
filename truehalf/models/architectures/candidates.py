"""torchvision's one-stage detectors as a graph of fixed sizes: their candidates, as they are before NMS.

torchvision takes a list of images of any sizes and returns as many boxes as it finds. Here a batch of images of one
size goes in, and of each image come out the `count` anchors that score highest, best first:

    scores  [N, count, classes]  0..1, what torchvision compares with its threshold
    boxes   [N, count, 4]        xyxy in pixels, clipped to the image

The anchors are constants of that size. Anchors are ranked before they are decoded, so `count` rows are decoded and not
all of them. NMS, whose output has as many rows as the image has objects, is left to what runs the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def candidates(network: torch.nn.Module, size: Sequence[int], count: int) -> torch.nn.Module:
    """A module in eval mode around an SSD, RetinaNet or FCOS of torchvision, held under the name `network`.

    Args:
        size: height and width of the images.
        count: candidates of an image; all anchors where there are fewer.

    Returns:
        takes float32 [N, 3, height, width], RGB in 0..1, and returns (scores, boxes).
    """
    return _class()(network, tuple(size), count).eval()


def _class() -> type[torch.nn.Module]:
    """The class, made on first use so that importing this module does not import torch."""
    import torch
    from torchvision.models.detection.fcos import FCOS
    from torchvision.models.detection.image_list import ImageList
    from torchvision.models.detection.ssd import SSD

    class Candidates(torch.nn.Module):
        mean: torch.Tensor
        std: torch.Tensor
        anchors: torch.Tensor
        limits: torch.Tensor
        units: torch.Tensor

        def __init__(self, network: Any, size: tuple[int, ...], count: int) -> None:
            super().__init__()
            self.network = network
            self._softmax, self._centred = isinstance(network, SSD), isinstance(network, FCOS)
            coder = network.box_coder
            self._by_size = bool(getattr(coder, "normalize_by_size", False))
            self._most = getattr(coder, "bbox_xform_clip", None)  # of the logarithm of a box's scaling
            height, width = size
            with torch.no_grad():
                images = torch.zeros(1, 3, height, width)
                features = list(network.backbone(images).values())
                (anchors,) = network.anchor_generator(ImageList(images, [(height, width)]), features)
            self._count = min(count, len(anchors))
            constants = {
                "mean": torch.tensor(network.transform.image_mean)[:, None, None],
                "std": torch.tensor(network.transform.image_std)[:, None, None],
                "anchors": torch.cat([(anchors[:, :2] + anchors[:, 2:]) / 2, anchors[:, 2:] - anchors[:, :2]], dim=1),
                "limits": torch.tensor([width, height, width, height], dtype=torch.float32),
                "units": 1 / torch.tensor(getattr(coder, "weights", (1.0,) * 4)),  # of what the head says of a box
            }
            for name, value in constants.items():
                self.register_buffer(name, value, persistent=False)

        def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            features = list(self.network.backbone((images - self.mean) / self.std).values())
            heads = self.network.head(features)
            logits, codes = heads["cls_logits"], heads["bbox_regression"]
            if self._softmax:  # class 0 is background
                scores = logits.softmax(dim=-1)[..., 1:]
                best = self._best(scores.amax(dim=-1))
                return _rows(scores, best), self._boxes(_rows(codes, best), self.anchors[best])
            if not self._centred:
                best = self._best(logits.amax(dim=-1))
                return _rows(logits, best).sigmoid(), self._boxes(_rows(codes, best), self.anchors[best])
            centred = heads["bbox_ctrness"].sigmoid()
            best = self._best(logits.amax(dim=-1).sigmoid() * centred[..., 0])
            scores = (_rows(logits, best).sigmoid() * _rows(centred, best)).sqrt()
            return scores, self._clipped(*self._sides(_rows(codes, best), self.anchors[best]))

        def _best(self, rank: torch.Tensor) -> torch.Tensor:
            """[N, count]: the anchors that rank highest."""
            return rank.topk(self._count, dim=1).indices

        def _boxes(self, codes: torch.Tensor, anchors: torch.Tensor) -> torch.Tensor:
            """Of SSD and RetinaNet: the shift of the centre in sizes of the anchor, and the logarithm of its scale."""
            codes = codes * self.units
            centre, extent = anchors[..., :2], anchors[..., 2:]
            middle, half = centre + codes[..., :2] * extent, codes[..., 2:].clamp(max=self._most).exp() * extent / 2
            return self._clipped(middle - half, middle + half)

        def _sides(self, codes: torch.Tensor, anchors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            """Of FCOS: how far each side is from the centre, in sizes of the anchor."""
            centre, extent = anchors[..., :2], anchors[..., 2:]
            low, high = codes[..., :2], codes[..., 2:]
            return (centre - low * extent, centre + high * extent) if self._by_size else (centre - low, centre + high)

        def _clipped(self, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
            return torch.minimum(torch.cat([low, high], dim=-1).clamp(min=0), self.limits)

    return Candidates


def _rows(values: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Rows [N, count] of values [N, anchors, n]."""
    return values.gather(1, rows[..., None].expand(-1, -1, values.shape[-1]))
