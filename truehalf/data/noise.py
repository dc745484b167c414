"""Noise: uniform in the range of a pixel, seeded. It says nothing of real ranges: docs/data.md has the figures."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from truehalf.config.schema import Config
from truehalf.data.drawn import Drawn, LabelledImage

# Measured by `python -m benchmarks.noise`.
WARNING = (
    "calibrated on noise (data=random): its ranges are not those of real images. On the embedded D-FINE detector, "
    "13 % of the tensors reach less than half of their largest |x| on real images, the smallest 21 % of it; with "
    "attention values times 2^7, data_max keeps 14 nodes FP32 by real images and none by noise. Give real samples: "
    "docs/data.md"
)
_SPLITS = ("trace", "calibration", "verification")


class NoiseImages(Drawn):
    """Images of noise, a function of (seed, purpose, number)."""

    def __init__(self, purpose: str, count: int, size: tuple[int, int], seed: int) -> None:
        super().__init__([f"random/{purpose}/{number}" for number in range(count)])
        self._split, self._size, self._seed = _SPLITS.index(purpose), size, seed

    def item(self, position: int) -> LabelledImage:
        rng = np.random.default_rng([self._seed, self._split, position])
        return LabelledImage.of_array(self.names[position], rng.integers(0, 256, (*self._size, 3), np.uint8))


def drawn(config: Config, root: Path, purpose: str, first: int, count: int) -> NoiseImages:
    """Noise for a purpose, in the size of the model; where the model's source says that, 256 x 256, resized."""
    height, width = (side or 256 for side in config.model.image_size)
    return NoiseImages(purpose, count, (height, width), config.data.seed)
