"""Noise: images uniform in the range of a pixel, and inputs of a file as NVIDIA AutoCast draws them, both seeded. It
says nothing of real ranges: docs/data.md has the figures.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from truehalf.config.schema import Config
from truehalf.data.drawn import Drawn, LabelledImage
from truehalf.errors import StageError

if TYPE_CHECKING:
    import onnx_ir as ir

# Measured by `python -m benchmarks.noise`.
WARNING = (
    "calibrated on noise (data=random): its ranges are not those of real images. On the embedded D-FINE detector, "
    "13 % of the tensors reach less than half of their largest |x| on real images, the smallest 21 % of it; with "
    "attention values times 2^7, data_max keeps 14 nodes FP32 by real images and none by noise. Give real samples"
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


def feed_of_noise(model: ir.Model) -> dict[str, np.ndarray]:
    """One input of a model as AutoCast draws it (Polygraphy's DataLoader, values from -1 to 1, seed 1).

    Returns:
        by input without a default, in their order: floats uniform in [-1, 1); integers of -1, 0 and 1, without a sign
        of 0 and 1; true for bools. An axis that varies has one element.

    Raises:
        StageError: an input that is no tensor of numbers, or of an unknown rank.
    """
    drawn, rng = {}, np.random.RandomState(1)
    for value in model.graph.inputs:
        if value.is_initializer():
            continue
        dtype = None if value.dtype is None else value.dtype.numpy()
        if dtype is None or value.shape is None or dtype.kind not in "fiub":
            said = (
                f"input {value.name!r}: no value is drawn for {value.type}, shape {value.shape}; give calibration data"
            )
            raise StageError("needs-value", said)
        shape = [side if isinstance(side, int) else 1 for side in value.shape]
        if dtype.kind == "f":
            array = (2 * rng.random_sample(shape) - 1).astype(dtype)
        else:
            array = rng.randint({"i": -1, "u": 0, "b": 1}[dtype.kind], 2, shape, dtype)
        drawn[str(value.name)] = np.asarray(array, dtype)
    return drawn
