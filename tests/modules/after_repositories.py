"""What public repositories do in forward, rebuilt small: heads, samplers, memories, masks, positions."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional


def images(batch: int, seed: int, size: int = 16) -> dict[str, Tensor]:
    return {"x": torch.rand(batch, 3, size, size, generator=torch.Generator().manual_seed(seed))}


class BEVFormerSampling(nn.Module):
    """BEVFormer's spatial cross attention keeps the queries that a camera sees, padded to the most of any camera."""

    VERDICT = "failed"

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(8, 8)

    @staticmethod
    def samples(batch: int, seed: int) -> dict[str, Tensor]:
        random = torch.Generator().manual_seed(seed)
        return {"queries": torch.rand(batch, 12, 8, generator=random), "depth": torch.rand(12, generator=random) - 0.5}

    def forward(self, queries: Tensor, depth: Tensor) -> Tensor:
        seen = (depth > 0).nonzero().squeeze(-1)
        kept = queries.new_zeros(queries.shape[0], max(len(seen), 1), 8)
        kept[:, : len(seen)] = queries[:, seen]
        return self.project(kept).sum(1)


class StreamPETRMemory(nn.Module):
    """StreamPETR passes the queries of earlier frames in and out as a memory."""

    VERDICT = "passed"

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    @staticmethod
    def samples(batch: int, seed: int) -> dict[str, Tensor]:
        random = torch.Generator().manual_seed(seed)
        return {
            "queries": torch.rand(batch, 5, 8, generator=random),
            "memory": torch.rand(batch, 7, 8, generator=random),
        }

    def forward(self, queries: Tensor, memory: Tensor) -> dict[str, Tensor]:
        mixed, _ = self.attention(queries, torch.cat([memory, queries], 1), torch.cat([memory, queries], 1))
        return {"found": mixed, "memory_out": torch.cat([mixed[:, :2], memory], 1)[:, :7]}


class RTMDetHead(nn.Module):
    """RTMDet's head makes priors from the sizes of its feature maps and decodes distances to boxes."""

    VERDICT = "passed"

    def __init__(self) -> None:
        super().__init__()
        self.levels = nn.ModuleList(nn.Conv2d(3, 4, 3, stride, 1) for stride in (2, 4))

    samples = staticmethod(images)

    def forward(self, x: Tensor) -> Tensor:
        boxes = []
        for level in self.levels:
            distances = level(x).exp()
            height, width = distances.shape[-2:]
            stride = x.shape[-1] / width
            ys, xs = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
            points = torch.stack([xs, ys], -1).reshape(-1, 2).to(x) * stride
            flat = distances.flatten(2).transpose(1, 2)
            boxes.append(torch.cat([points - flat[..., :2], points + flat[..., 2:]], -1))
        return torch.cat(boxes, 1)


class YOLOv5Detect(nn.Module):
    """YOLOv5's Detect keeps a grid, and makes it anew where the feature map has another size."""

    VERDICT = "passed"

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Conv2d(3, 3 * 6, 1)
        self.grid = torch.empty(0)
        self.register_buffer("anchors", torch.tensor([[1.0, 2.0], [2.0, 1.0], [3.0, 3.0]]).view(1, 3, 1, 1, 2))

    samples = staticmethod(images)

    def forward(self, x: Tensor) -> Tensor:
        batch, _, height, width = x.shape
        out = self.head(x).view(batch, 3, 6, height, width).permute(0, 1, 3, 4, 2).contiguous()
        if self.grid.shape[2:4] != out.shape[2:4]:
            ys, xs = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
            self.grid = torch.stack((xs, ys), 2).expand(1, 3, height, width, 2).float()
        xy, wh, rest = out.sigmoid().split((2, 2, 2), 4)
        centre = (xy * 2 + self.grid - 0.5) * 8
        return torch.cat((centre, (wh * 2) ** 2 * self.anchors, rest), 4).view(batch, -1, 6)


class YOLOv8Detect(nn.Module):
    """YOLOv8's Detect caches anchors by the input's shape; boxes are expectations over bins (DFL)."""

    VERDICT = "passed"

    def __init__(self) -> None:
        super().__init__()
        self.head, self.shape, self.anchors = nn.Conv2d(3, 4 * 4 + 2, 1), None, torch.empty(0)

    samples = staticmethod(images)

    def forward(self, x: Tensor) -> Tensor:
        out = self.head(x)
        if self.shape != x.shape[1:]:
            height, width = out.shape[2:]
            ys, xs = torch.meshgrid(torch.arange(height) + 0.5, torch.arange(width) + 0.5, indexing="ij")
            self.anchors, self.shape = torch.stack((xs, ys)).view(2, -1), x.shape[1:]
        boxes, scores = out.flatten(2).split((16, 2), 1)
        bins = boxes.view(x.shape[0], 4, 4, -1).softmax(2)
        distances = (bins * torch.arange(4.0).view(1, 1, 4, 1)).sum(2)
        low, high = self.anchors - distances[:, :2], self.anchors + distances[:, 2:]
        return torch.cat(((low + high) / 2, high - low, scores.sigmoid()), 1)


class SAMPostprocess(nn.Module):
    """SAM's postprocess_masks resizes to a size that comes as a tensor; here it becomes a list of numbers."""

    VERDICT = "failed"

    @staticmethod
    def samples(batch: int, seed: int) -> dict[str, Tensor]:
        masks = torch.rand(batch, 1, 8, 8, generator=torch.Generator().manual_seed(seed))
        return {"masks": masks, "size": torch.tensor([10 + seed % 5, 12])}

    def forward(self, masks: Tensor, size: Tensor) -> Tensor:
        height, width = size.tolist()
        return functional.interpolate(masks, (height, width), mode="bilinear").mean((2, 3))


class GroundingDINOText(nn.Module):
    """Grounding DINO makes attention masks of a prompt in a loop over its separators."""

    VERDICT = "failed"

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(12, 8)

    @staticmethod
    def samples(batch: int, seed: int) -> dict[str, Tensor]:
        return {"tokens": torch.randint(0, 12, (batch, 9), generator=torch.Generator().manual_seed(seed))}

    def forward(self, tokens: Tensor) -> Tensor:
        embedded, mask = self.embed(tokens), torch.zeros(tokens.shape[0], 9, 9)
        for row, column in (tokens < 2).nonzero():
            mask[row, : column + 1, : column + 1] = 1
        return mask @ embedded


class Mask2FormerAttention(nn.Module):
    """Mask2Former lets a query see all where its predicted mask hides everything."""

    VERDICT = "passed"

    def __init__(self) -> None:
        super().__init__()
        self.keys = nn.Linear(8, 8)

    @staticmethod
    def samples(batch: int, seed: int) -> dict[str, Tensor]:
        random = torch.Generator().manual_seed(seed)
        masks = torch.rand(batch, 4, 6, generator=random) - 0.5
        masks[:, 0] = -1
        return {
            "queries": torch.rand(batch, 4, 8, generator=random),
            "pixels": torch.rand(batch, 6, 8, generator=random),
            "masks": masks,
        }

    def forward(self, queries: Tensor, pixels: Tensor, masks: Tensor) -> Tensor:
        hidden = masks < 0
        hidden = hidden & ~hidden.all(-1, keepdim=True)
        scores = queries @ self.keys(pixels).transpose(1, 2)
        return scores.masked_fill(hidden, float("-inf")).softmax(-1) @ pixels


class DETRPositions(nn.Module):
    """DETR computes sine positions from the mask of padded pixels."""

    VERDICT = "passed"

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 1)

    @staticmethod
    def samples(batch: int, seed: int) -> dict[str, Tensor]:
        valid = torch.ones(batch, 8, 8, dtype=torch.int64)
        valid[:, :, 5 + seed % 3 :] = 0
        return images(batch, seed, 8) | {"valid": valid}

    def forward(self, x: Tensor, valid: Tensor) -> Tensor:
        rows, columns = valid.cumsum(1, dtype=torch.float32), valid.cumsum(2, dtype=torch.float32)
        rows, columns = (each / (each.amax((1, 2), keepdim=True) + 1e-6) * 2 * math.pi for each in (rows, columns))
        frequencies = 10000 ** (torch.arange(2) / 2)
        parts = [(each[..., None] / frequencies) for each in (rows, columns)]
        positions = torch.cat([torch.cat([each.sin(), each.cos()], -1) for each in parts], -1)
        return self.conv(x) + positions.permute(0, 3, 1, 2)


class DeformableDETRLevels(nn.Module):
    """Deformable DETR keeps the sizes of its levels in a tensor, and iterates over it to make reference points."""

    VERDICT = "passed"

    def __init__(self) -> None:
        super().__init__()
        self.levels = nn.ModuleList(nn.Conv2d(3, 4, 3, stride, 1) for stride in (2, 4))

    samples = staticmethod(images)

    def forward(self, x: Tensor) -> Tensor:
        features = [level(x) for level in self.levels]
        shapes = torch.as_tensor([(each.shape[2], each.shape[3]) for each in features])
        points = []
        for height, width in shapes.tolist():
            ys, xs = torch.meshgrid(
                torch.linspace(0.5, height - 0.5, height), torch.linspace(0.5, width - 0.5, width), indexing="ij"
            )
            points.append(torch.stack((xs.reshape(-1) / width, ys.reshape(-1) / height), -1))
        flat = torch.cat([each.flatten(2).transpose(1, 2) for each in features], 1)
        return torch.cat([flat, torch.cat(points)[None].expand(x.shape[0], -1, -1)], -1)


class RTDETRAnchors(nn.Module):
    """RT-DETR makes logits of its anchors, with inf outside, and takes the best queries."""

    VERDICT = "passed"

    def __init__(self) -> None:
        super().__init__()
        self.project, self.score = nn.Conv2d(3, 8, 4, 4), nn.Linear(8, 3)

    samples = staticmethod(images)

    def forward(self, x: Tensor) -> Tensor:
        memory = self.project(x).flatten(2).transpose(1, 2)
        side = x.shape[-1] // 4
        ys, xs = torch.meshgrid(torch.arange(side) + 0.5, torch.arange(side) + 0.5, indexing="ij")
        anchors = torch.stack([xs, ys], -1).reshape(1, -1, 2) / side
        valid = ((anchors > 0.15) & (anchors < 0.95)).all(-1, keepdim=True)
        logits = torch.where(valid, torch.log(anchors / (1 - anchors)), torch.tensor(1e4))
        best = self.score(memory * valid).amax(-1).topk(5).indices
        chosen = (logits + memory[..., :2]).gather(1, best[..., None].repeat(1, 1, 2))
        return chosen.clamp(-20, 20).sigmoid()


class DFINEIntegral(nn.Module):
    """D-FINE's distances are expectations over a weighting function of two parameters."""

    VERDICT = "passed"

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Conv2d(3, 4 * 9, 4, 4)
        self.up, self.scale = nn.Parameter(torch.tensor([0.5]), False), nn.Parameter(torch.tensor([4.0]), False)

    samples = staticmethod(images)

    def forward(self, x: Tensor) -> Tensor:
        upper = self.up[0].abs() * self.scale[0].abs()
        step = (upper * 2 + 1) ** (2 / 7)
        left = [-(step**i) + 1 for i in range(3, 0, -1)]
        right = [step**i - 1 for i in range(1, 4)]
        weights = torch.stack([-upper * 2, *left, torch.zeros_like(upper), *right, upper * 2])
        corners = self.head(x).flatten(2).transpose(1, 2).reshape(x.shape[0], -1, 4, 9)
        return corners.softmax(-1) @ weights


class DINOv3Rope(nn.Module):
    """DINOv3 turns queries and keys by rotary positions of patches."""

    VERDICT = "passed"

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.qkv = nn.Conv2d(3, 8, 4, 4), nn.Linear(8, 24)

    samples = staticmethod(images)

    def forward(self, x: Tensor) -> Tensor:
        patches = self.patches(x)
        height, width = patches.shape[2:]
        tokens = patches.flatten(2).transpose(1, 2)
        ys, xs = ((torch.arange(0.5, side) / side * 2 - 1) for side in (height, width))
        places = torch.stack(torch.meshgrid(ys, xs, indexing="ij"), -1).flatten(0, 1)
        angles = (2 * math.pi * places[:, :, None] / torch.tensor([1.0, 10.0])).flatten(1).repeat(1, 2)

        def turned(each: Tensor) -> Tensor:
            first, second = each.chunk(2, -1)
            return each * angles.cos() + torch.cat((-second, first), -1) * angles.sin()

        q, k, v = self.qkv(tokens).chunk(3, -1)
        return functional.scaled_dot_product_attention(turned(q), turned(k), v)


class SwinWindows(nn.Module):
    """Swin pads to whole windows, shifts them by roll, and takes the padding away."""

    VERDICT = "passed"

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(3, 3)

    @staticmethod
    def samples(batch: int, seed: int) -> dict[str, Tensor]:
        return images(batch, seed, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = x.permute(0, 2, 3, 1)
        batch, height, width, channels = x.shape
        if height % 4 or width % 4:
            x = functional.pad(x, (0, 0, 0, -width % 4, 0, -height % 4))
        padded = x.shape[1]
        windows = x.roll((-2, -2), (1, 2)).view(batch, padded // 4, 4, padded // 4, 4, channels)
        windows = self.mix(windows.permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, channels))
        back = windows.view(batch, padded // 4, padded // 4, 4, 4, channels).permute(0, 1, 3, 2, 4, 5)
        return back.reshape(batch, padded, padded, channels).roll((2, 2), (1, 2))[:, :height, :width]


class SegFormerBlock(nn.Module):
    """SegFormer reduces keys by a convolution, and comes back to an image by the sizes that it kept."""

    VERDICT = "passed"

    def __init__(self) -> None:
        super().__init__()
        self.reduce, self.norm = nn.Conv2d(3, 3, 4, 4), nn.LayerNorm(3)

    samples = staticmethod(images)

    def forward(self, x: Tensor) -> Tensor:
        batch, channels, height, width = x.shape
        queries = x.flatten(2).transpose(1, 2)
        keys = self.norm(self.reduce(x).flatten(2).transpose(1, 2))
        mixed = (queries @ keys.transpose(-2, -1)).softmax(-1) @ keys
        small = mixed.transpose(1, 2).reshape(batch, channels, height, width)
        return functional.interpolate(small, scale_factor=2, mode="bilinear", align_corners=False)


class CenterNetPeaks(nn.Module):
    """CenterNet finds peaks by a max pool, and gathers their sizes."""

    VERDICT = "passed"

    def __init__(self) -> None:
        super().__init__()
        self.heat, self.sizes = nn.Conv2d(3, 2, 3, padding=1), nn.Conv2d(3, 2, 3, padding=1)

    samples = staticmethod(images)

    def forward(self, x: Tensor) -> Tensor:
        heat = self.heat(x).sigmoid()
        peaks = heat * (functional.max_pool2d(heat, 3, 1, 1) == heat)
        scores, places = peaks.flatten(1).topk(6)
        places = places % (x.shape[2] * x.shape[3])
        sizes = self.sizes(x).flatten(2).gather(2, places[:, None].expand(-1, 2, -1))
        return torch.cat([scores[..., None], (places // x.shape[3])[..., None].float(), sizes.transpose(1, 2)], -1)


class PointPillarsScatter(nn.Module):
    """PointPillars scatters pillars into a canvas for each image that their coordinates name."""

    VERDICT = "failed"

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 2, 3, padding=1)

    @staticmethod
    def samples(batch: int, seed: int) -> dict[str, Tensor]:
        random = torch.Generator().manual_seed(seed)
        cells = torch.stack([torch.randperm(64, generator=random)[:10] for _ in range(1)])[0]
        frames = torch.randint(0, 1 + seed % 3, (10,), generator=random)
        return {"pillars": torch.rand(10, 4, generator=random), "frames": frames, "cells": cells}

    def forward(self, pillars: Tensor, frames: Tensor, cells: Tensor) -> Tensor:
        canvases = []
        for number in range(int(frames.max()) + 1):
            canvas = pillars.new_zeros(4, 64)
            mine = frames == number
            canvas[:, cells[mine]] = pillars[mine].t()
            canvases.append(canvas.view(4, 8, 8))
        return self.conv(torch.stack(canvases)).sum(0)


class SuperPointNMS(nn.Module):
    """SuperPoint suppresses neighbours by rounds of max pools."""

    VERDICT = "passed"

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Conv2d(3, 1, 3, padding=1)

    samples = staticmethod(images)

    def forward(self, x: Tensor) -> Tensor:
        def pooled(scores: Tensor) -> Tensor:
            return functional.max_pool2d(scores, 5, 1, 2)

        scores = self.score(x).sigmoid()
        is_peak = scores == pooled(scores)
        for _ in range(2):
            near = pooled(is_peak.float()) > 0
            left = torch.where(near, torch.zeros_like(scores), scores)
            is_peak = is_peak | ((left == pooled(left)) & ~near)
        return torch.where(is_peak, scores, torch.zeros_like(scores))


class CLIPText(nn.Module):
    """CLIP takes the features at the end of each text, where the largest token is."""

    VERDICT = "passed"

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm = nn.Embedding(20, 8), nn.LayerNorm(8)

    @staticmethod
    def samples(batch: int, seed: int) -> dict[str, Tensor]:
        return {"tokens": torch.randint(0, 20, (batch, 7), generator=torch.Generator().manual_seed(seed))}

    def forward(self, tokens: Tensor) -> Tensor:
        features = self.norm(self.embed(tokens))
        causal = torch.full((7, 7), float("-inf")).triu(1)
        mixed = (features @ features.transpose(1, 2) + causal).softmax(-1) @ features
        return functional.normalize(mixed[torch.arange(tokens.shape[0]), tokens.argmax(-1)], dim=-1)


class FCOSLocations(nn.Module):
    """FCOS makes locations by stride, and scales its distances by a parameter of each level."""

    VERDICT = "passed"

    def __init__(self) -> None:
        super().__init__()
        self.head, self.scales = nn.Conv2d(3, 4, 3, 2, 1), nn.ParameterList([nn.Parameter(torch.ones(1))])

    samples = staticmethod(images)

    def forward(self, x: Tensor) -> Tensor:
        distances = functional.relu(self.head(x) * self.scales[0])
        height, width = distances.shape[2:]
        xs, ys = torch.arange(0, width * 2, 2, dtype=torch.float32), torch.arange(0, height * 2, 2, dtype=torch.float32)
        ys, xs = torch.meshgrid(ys, xs, indexing="ij")
        places = torch.stack((xs.reshape(-1), ys.reshape(-1)), 1) + 1
        flat = distances.permute(0, 2, 3, 1).reshape(x.shape[0], -1, 4)
        return torch.cat([places - flat[..., :2], places + flat[..., 2:]], -1)
