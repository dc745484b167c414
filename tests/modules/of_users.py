"""What users' own modules do in forward: conditions, caches, logs, shapes, wrappers."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations

from tests.modules.after_repositories import images

LOG = logging.getLogger(__name__)


class Small(nn.Module):
    """A convolution, of which the others are made."""

    VERDICT = "passed"
    samples = staticmethod(images)

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Any:
        return self.conv(x)


class EarlyExit(Small):
    VERDICT = "failed"

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        return y * 0 if x.mean() < 0.49 else y


class RoundedMean(Small):
    VERDICT = "failed"

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x) * int(x.sum() * 10)


class Logs(Small):
    def forward(self, x: Tensor) -> Tensor:
        LOG.debug("mean %f", x.mean().item())
        return self.conv(x)


class Asserts(Small):
    def forward(self, x: Tensor) -> Tensor:
        assert x.min() >= 0, "not normalised"
        return self.conv(x)


class DropoutInTraining(Small):
    def forward(self, x: Tensor) -> Tensor:
        return functional.dropout(self.conv(x), 0.5, self.training)


class DropoutAlways(Small):
    VERDICT = "failed"

    def forward(self, x: Tensor) -> Tensor:
        return functional.dropout(self.conv(x), 0.5, True)


class SqueezesAll(Small):
    """squeeze() without an axis takes the axis of images away where there is one image."""

    VERDICT = "failed"

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x).mean((2, 3), keepdim=True).squeeze()


class CachedPositions(Small):
    def __init__(self) -> None:
        super().__init__()
        self.cache: dict[tuple[int, int], Tensor] = {}

    def forward(self, x: Tensor) -> Tensor:
        size = (int(x.shape[2]), int(x.shape[3]))
        if size not in self.cache:
            self.cache[size] = torch.arange(size[0] * size[1], dtype=torch.float32).view(size).sin()
        return self.conv(x) + self.cache[size]


class CachedInput(Small):
    VERDICT = "failed"

    def __init__(self) -> None:
        super().__init__()
        self.first: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.first is None:
            self.first = x.mean().detach()
        return self.conv(x) * self.first


class RareCondition(Small):
    """No sample reaches the condition: nothing differs, and another input may."""

    VERDICT = "open"

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        if x.sum() > 1e9:
            y = y * 0
        return y


class ThroughNumpy(Small):
    VERDICT = "failed"

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x) * float(np.median(x.detach().numpy()))


class ParameterItem(Small):
    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.tensor(1.5))

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x) * self.gain.item()


class WeightNorm(Small):
    def __init__(self) -> None:
        super().__init__()
        self.conv = parametrizations.weight_norm(nn.Conv2d(3, 4, 3, padding=1))


class PaddedAttention(nn.Module):
    VERDICT = "passed"

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    @staticmethod
    def samples(batch: int, seed: int) -> dict[str, Tensor]:
        padding = torch.zeros(batch, 6, dtype=torch.bool)
        padding[:, 4 + seed % 2 :] = True
        return {"x": torch.rand(batch, 6, 8, generator=torch.Generator().manual_seed(seed)), "padding": padding}

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        return self.attention(x, x, x, key_padding_mask=padding, need_weights=False)[0]


class Recurrent(nn.Module):
    VERDICT = "passed"

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(8, 4, batch_first=True, bidirectional=True)

    @staticmethod
    def samples(batch: int, seed: int) -> dict[str, Tensor]:
        return {"x": torch.rand(batch, 5, 8, generator=torch.Generator().manual_seed(seed))}

    def forward(self, x: Tensor) -> Tensor:
        return self.gru(x)[0][:, -1]


class NestedOutputs(Small):
    def forward(self, x: Tensor) -> Any:
        y = self.conv(x)
        return {"features": [y, y.relu()], "pooled": y.mean((2, 3))}


class InPlace(Small):
    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        y[:, 0] = y[:, 1].clamp(min=0)
        return y.mul_(2)


class Scripted(Small):
    """A part that torch.jit.script has compiled, whose condition on data stays a condition."""

    def __init__(self) -> None:
        super().__init__()
        self.part = torch.jit.script(halved)

    def forward(self, x: Tensor) -> Tensor:
        return self.part(self.conv(x))


def halved(y: Tensor) -> Tensor:
    if bool(y.mean() > 0):
        return y * 0.5
    return y


class GridSampled(Small):
    def forward(self, x: Tensor) -> Tensor:
        side = torch.linspace(-1, 1, x.shape[-1])
        grid = torch.stack(torch.meshgrid(side, side * 0.9, indexing="xy"), -1).expand(x.shape[0], -1, -1, 2)
        return functional.grid_sample(self.conv(x), grid, align_corners=False)


class AffineGrid(Small):
    """The torchscript exporter has no translation of affine_grid, and the error says so."""

    VERDICT = "failed"

    def forward(self, x: Tensor) -> Tensor:
        theta = torch.tensor([[1.0, 0.1, 0.0], [-0.1, 1.0, 0.0]]).expand(x.shape[0], 2, 3)
        return functional.grid_sample(self.conv(x), functional.affine_grid(theta, list(x.shape), align_corners=False))


class CountsOfData(Small):
    """As many rows as a threshold lets through: the file's output has a size of its own for each input."""

    VERDICT = "passed"

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x).flatten(1)
        return torch.where(y > 0.2, y, torch.zeros_like(y)).sum(1, keepdim=True)
