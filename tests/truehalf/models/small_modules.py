"""Modules that are traced in a moment, with their I/O specs and inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

SPEC: dict[str, Any] = {
    "inputs": [{"name": "x", "dtype": "float32", "shape": ["n", 4]}],
    "outputs": [{"name": "y", "dtype": "float32", "shape": ["n", 3]}],
    "class_names": [],
    "trained": True,
}
SCALED = SPEC | {"inputs": [{"name": "scale", "dtype": "int64", "shape": [1]}, *SPEC["inputs"]]}
PICTURES = {"name": "images", "dtype": "float32", "shape": ["batch", 3, "height", "width"], "kind": "images"}
FEATURES: dict[str, Any] = {
    "inputs": [PICTURES],
    "outputs": [
        {"name": "features", "dtype": "float32", "shape": ["batch", 4, 16, 16]},
        {"name": "mean", "dtype": "float32", "shape": ["batch", 4]},
    ],
    "class_names": [],
    "trained": True,
}


def feeds(*values: float) -> dict[str, np.ndarray]:
    return {"x": np.array([[value, 1, 2, 3] for value in values], np.float32)}


def sized(*sizes: tuple[int, int], batch: int = 2) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [{"images": rng.random((batch, 3, *size), np.float32)} for size in sizes]


class Head(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.fc(x))


class Baked(Head):
    """Python reads an input."""

    def forward(self, scale: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x) * scale.item()


class Unread(Head):
    """No output depends on `scale`."""

    def forward(self, scale: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        assert len(torch.eye(9)[scale]) == len(scale)  # takes no number beyond 8
        return super().forward(x)


class Convolved(torch.nn.Module):
    """Of any size: a map of features, and their mean."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3, stride=4, padding=1)

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, ...]:
        features = self.conv(images).relu()
        return features, features.mean((2, 3))


class FixedHeight(Convolved):
    """Keeps its height in a buffer; the exporters only see that the sizes fit at the traced one."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.linspace(0, 1, 16)[:, None])

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, ...]:
        features, _ = super().forward(images)
        features = features + self.rows
        return features, features.mean((2, 3))
