"""Noise: uniform in the range of a pixel, seeded. It says nothing of real ranges (docs/data.md has figures)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from conf.schema import Config
from stages.data.picture import Picture

_SPLITS = ("trace", "calibration", "verification")


class NoisePictures(Sequence[Picture]):
    """Pictures of noise, a function of (seed, purpose, number)."""

    def __init__(self, purpose: str, count: int, size: tuple[int, int], seed: int) -> None:
        self._purpose, self._count, self._size, self._seed = purpose, count, size, seed

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        number = range(self._count)[index]
        rng = np.random.default_rng([self._seed, _SPLITS.index(self._purpose), number])
        return Picture.of_array(f"random/{self._purpose}/{number}", rng.integers(0, 256, (*self._size, 3), np.uint8))


def drawn(config: Config, root: Path, purpose: str, first: int, count: int) -> NoisePictures:
    """Noise for a purpose, in the size of the model; where the model's source says that, 256 x 256, resized."""
    height, width = (side or 256 for side in config.model.image_size)
    return NoisePictures(purpose, count, (height, width), config.data.seed)
